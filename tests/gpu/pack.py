"""Packs all that a bare GPU machine without a network lacks: `make gpu-pack` leaves `.gpu/1`, `.gpu/2` and so on.

The machine has x86-64 Linux with Python 3.12, an NVIDIA driver, and CUDA 13 and cuDNN 9 from PyTorch's packages. The
archive holds the CUDA image's locked distributions without NVIDIA's own, the tests' distributions, a small Java
runtime, and Kafka's jars. It is cut into pieces that can be copied one by one; `run.sh` joins them there. ONNX Runtime
has kernels for each generation of GPUs; only the wanted generation's are packed.

    make gpu-pack                                                  # needs jlink (a JDK), pip's registry, Maven's once
    python -m tests.gpu.pack --capability 8.0 --piece-mib 40       # for an A100, in smaller pieces
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from tests.kafka.broker import VERSION, jars

ROOT = Path(__file__).parents[2]
PIECES = ROOT / ".gpu"
SUMS = "pieces.sha256"
THERE = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.12.3",
    "python_version": "3.12",
    "sys_platform": "linux",
}
# pip takes each of these names literally, and accepts no older platform for it.
PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)),
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
]
OF_NVIDIA = re.compile(r"(nvidia|cuda)-")
# Further imports of the tests and benchmarks in `tests/gpu` and `bench/gpu`.
FOR_TESTS = {
    *("pytest", "pytest-timeout", "iniconfig", "pluggy", "hypothesis", "sortedcontainers"),
    *("onnx", "ml-dtypes", "tritonclient", "grpcio", "python-rapidjson"),
}
JAVA = (
    *("java.base", "java.desktop", "java.instrument", "java.logging", "java.management", "java.naming", "java.xml"),
    *("java.sql", "java.security.jgss", "java.security.sasl", "jdk.unsupported", "jdk.crypto.ec", "jdk.management"),
    "jdk.zipfs",
)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Packs what a bare GPU machine without a network lacks.")
    parser.add_argument("--piece-mib", type=int, default=54, help="the largest piece")
    parser.add_argument("--capability", default="9.0", help="of the GPU; 9.0 is that of an H100 and an H200")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu-pack", help="what is packed, kept here")
    asked = parser.parse_args()
    folder: Path = asked.folder
    folder.mkdir(parents=True, exist_ok=True)
    _distributions(folder, asked.capability)
    _java(folder / "jre")
    shutil.copytree(jars(), folder / "kafka" / VERSION, dirs_exist_ok=True)
    count = _cut(folder, asked.piece_mib << 20)
    sys.stdout.write(f"{count} pieces in {PIECES.name}/, the last is smaller; tests/gpu/run.sh says what comes next\n")


def wanted(cuda: str, development: str) -> Iterator[str]:
    """Lines of a requirements file, with hashes, from two locks: the image's, and the tests' part of the other."""
    for name, line in _locked(cuda):
        if not OF_NVIDIA.match(name):
            yield line
    for name, line in _locked(development):
        if name in FOR_TESTS:
            yield line


def _locked(lock: str) -> Iterator[tuple[str, str]]:
    """The requirements that the target's Python would install: the name, and a line without a marker."""
    for line in lock.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            said, *hashes = line.split("--hash=")
            requirement = Requirement(said.strip())
            if requirement.marker is None or requirement.marker.evaluate(THERE):
                version = f"{requirement.name}{requirement.specifier}"
                yield requirement.name, " --hash=".join([version, *map(str.strip, hashes)])


def _distributions(folder: Path, capability: str) -> None:
    """Install into `site`, for the target's Python and a GPU of this compute capability."""
    chosen = "\n".join(
        wanted((ROOT / "requirements-cuda.txt").read_text(), (ROOT / "requirements-dev.txt").read_text())
    )
    listed, site = folder / "wanted.txt", folder / "site"
    stamp = f"{chosen}\n# compute capability {capability}\n"
    if site.exists() and listed.exists() and listed.read_text() == stamp:
        return
    shutil.rmtree(site, ignore_errors=True)
    listed.unlink(missing_ok=True)
    asked = folder / "asked.txt"
    asked.write_text(stamp)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--only-binary=:all:"]
    options += ["--python-version", THERE["python_version"], "--implementation", "cp", "--ignore-requires-python"]
    options += [f"--platform={name}" for name in (*PLATFORMS, "any")]
    _run(sys.executable, "-m", "pip", "install", *options, "--require-hashes", "--target", str(site), "-r", str(asked))
    _keep_kernels(site / "onnxruntime" / "capi" / "libonnxruntime_providers_cuda.so", capability)
    asked.rename(listed)  # last, so that an interrupted installation begins anew


# The heads of a fatbin and of its entries, as the CUDA toolkit writes them; an entry's ends with a compute capability.
_FATBIN, _ENTRY = struct.Struct("<IHHQ"), struct.Struct("<HHIQ12xI")
_MAGIC, _VERSION = (0xBA55ED50).to_bytes(4, "little"), 1


def _keep_kernels(provider: Path, capability: str) -> None:
    """Replace other GPUs' kernels by zeros, which take no room in an archive. Fails where no kernel is left."""
    code, generation, at, found = bytearray(provider.read_bytes()), int(capability.replace(".", "")), 0, 0
    while (at := code.find(_MAGIC, at)) >= 0:
        _, version, header, size = _FATBIN.unpack_from(code, at)
        if (version, header) != (_VERSION, _FATBIN.size):
            at += len(_MAGIC)
            continue
        at, end = at + header, at + header + size
        while at < end:
            _, _, header, size, is_for = _ENTRY.unpack_from(code, at)
            if is_for == generation:
                found += 1
            else:
                code[at + header : at + header + size] = bytes(size)
            at += header + size
    assert found, f"{provider.name} has no kernels for compute capability {capability}"
    provider.write_bytes(code)


def _java(folder: Path) -> None:
    """Make a Java runtime with the modules that Kafka uses."""
    if folder.exists():
        return
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    options = ["--strip-debug", "--no-man-pages", "--no-header-files", "--add-modules", ",".join(JAVA)]
    _run("jlink", *options, "--output", str(part))
    part.rename(folder)


def _cut(folder: Path, size: int) -> int:
    """Cut the archive into pieces, each in a folder with the checksums of all. Returns their number."""
    shutil.rmtree(PIECES, ignore_errors=True)
    PIECES.mkdir()
    sums: list[str] = []
    whole = ["tar", "-C", str(folder), "--use-compress-program", "xz -T0", "-cf", "-", "site", "jre", "kafka"]
    with subprocess.Popen(whole, stdout=subprocess.PIPE) as packing:
        assert packing.stdout is not None
        while piece := packing.stdout.read(size):
            path = PIECES / str(len(sums) + 1) / f"piece.{len(sums):02}"
            path.parent.mkdir()
            path.write_bytes(piece)
            sums.append(f"{hashlib.sha256(piece).hexdigest()}  {path.name}\n")
    assert packing.returncode == 0, "tar failed"
    for number in range(1, len(sums) + 1):
        (PIECES / str(number) / SUMS).write_text("".join(sums))
    return len(sums)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()

"""Builds the stand-in for CUDA with gcc, for the installed provider."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import onnxruntime as ort

RUNTIME = "libcudart.so.13"
# The provider loads cuDNN by name when it opens a session; the other libraries are in its own list.
LOADED_LATER = ("libcudnn.so.9",)
SOURCE = Path(__file__).parent / "runtime.c"
_FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{RUNTIME}")


class Unavailable(Exception):
    """The stand-in cannot be built on this machine. The message says why."""


def build(folder: Path) -> None:
    """Build one library with all functions, under each name that the provider looks for. Raises `Unavailable`."""
    provider = _provider()
    if find_spec("nvidia"):
        raise Unavailable("CUDA is installed here from pip's packages, and ONNX Runtime takes that first")
    for tool in ("gcc", "readelf"):  # the latter comes with the assembler that gcc needs
        if shutil.which(tool) is None:
            raise Unavailable(f"no {tool} on the PATH, and the stand-in for CUDA is built with it")
    about = _output("readelf", "--dynamic", "--dyn-syms", "--wide", str(provider))
    libraries = set(re.findall(r"\(NEEDED\).*\[(libcu\S+)\]", about))
    if RUNTIME not in libraries:
        raise Unavailable(f"the stand-in is {RUNTIME}, and this ONNX Runtime is made for {sorted(libraries)}")
    others = folder / "others.c"
    others.write_text(_others(set(re.findall(r" UND ((?:__)?cu\w+)", about))))
    _output("gcc", *_FLAGS, "-o", str(folder / RUNTIME), str(SOURCE), str(others))
    for name in {*libraries, *LOADED_LATER} - {RUNTIME}:
        (folder / name).symlink_to(RUNTIME)


def _provider() -> Path:
    path = Path(ort.__file__).parent / "capi" / "libonnxruntime_providers_cuda.so"
    if not path.exists():
        raise Unavailable("this ONNX Runtime is built without CUDA (onnxruntime-gpu has it)")
    return path


def _others(functions: set[str]) -> str:
    """Weak functions that fail; a definition in `runtime.c` replaces a weak one."""
    weak = '__attribute__((weak)) int {0}(void) {{ return stand_in_lacks("{0}"); }}'
    lines = ["int stand_in_lacks(const char *);", *(weak.format(name) for name in sorted(functions))]
    return "\n".join(lines) + "\n"


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, f"{command[0]}: {done.stderr}"
    return done.stdout

"""The Java clients of `schemas/README.md`, compiled and run as on the page, against a worker on a real Kafka.

They need a JDK, and Maven once, for protobuf; without them the test is skipped.
"""

from __future__ import annotations

import fcntl
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.stage import Stage, block, stage
from tests.kafka.broker import JARS, NoBrokerError, jars
from tests.kafka.cluster import Cluster

pytestmark = pytest.mark.timeout(300)  # Maven fetches, once

PROTOBUF = "4.35.1"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
CACHE = JARS.parents[1] / "protobuf" / PROTOBUF
SYSTEMS = {"Linux": "linux", "Darwin": "osx"}
MACHINES = {"x86_64": "x86_64", "arm64": "aarch_64", "aarch64": "aarch_64"}


@pytest.fixture(scope="module")
def java(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage with the page's tools: protoc, and jars in `lib`."""
    if shutil.which("javac") is None:
        pytest.skip("no javac on the PATH")
    try:
        kafka_jars, protobuf = jars(), fetched()
    except NoBrokerError as reason:
        pytest.skip(str(reason))
    with stage(kafka, tmp_path_factory) as found:
        shutil.copytree(protobuf / "bin", found.bin, dirs_exist_ok=True)
        shutil.copytree(protobuf / "lib", found.folder / "lib")
        for prefix in ("kafka-clients", "slf4j-api", "jackson-core", "jackson-databind", "jackson-annotations"):
            (jar,) = kafka_jars.glob(f"{prefix}-[0-9]*.jar")
            shutil.copy(jar, found.folder / "lib")
        found.program("Publish.java")
        found.program("Answers.java")
        yield found


def fetched() -> Path:
    """The folder of protobuf for Java, with its protoc. Maven fetches it once; else the test is skipped."""
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with (CACHE.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may want them at once
        if not CACHE.is_dir():
            part = CACHE.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            os_and_cpu = f"{SYSTEMS.get(platform.system())}-{MACHINES.get(platform.machine())}"
            _copy(f"protobuf-java:{PROTOBUF}", part / "lib")
            _copy(f"protoc:{PROTOBUF}:exe:{os_and_cpu}", part / "bin")
            (protoc,) = (part / "bin").iterdir()
            protoc.chmod(0o755)
            protoc.rename(part / "bin" / "protoc")
            part.rename(CACHE)
    return CACHE


def _copy(artifact: str, folder: Path) -> None:
    if shutil.which("mvn") is None:
        pytest.skip("no mvn on the PATH, which fetches protobuf for Java")
    command = ["mvn", "-q", "-B", COPY, f"-Dartifact=com.google.protobuf:{artifact}", f"-DoutputDirectory={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        pytest.skip(f"Maven could not fetch {artifact}: {done.stdout[-300:]}")


def test_each_encoding_gets_its_answer_and_no_repeat_is_seen(java: Stage) -> None:
    """The reader prints the page's output, although each answer came twice."""
    java.sh("java-build")
    java.repeat_and_end()

    lines = java.lines(["java", "-cp", ".:lib/*", "Answers"], until="end ")

    assert lines == [*block("answers").text.splitlines(), "end 0.5 0.25"]

"""The contender in C. It is built, if there is a compiler, with the libraries in the worker's Python packages.

So it has the worker's librdkafka and ONNX Runtime, and the worker's own client settings. Owns the program in
`build/native`, which is rebuilt when its source or a library changes. Without a compiler it is absent, and the table
says why.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path

import confluent_kafka
import onnxruntime

from worker.kafka.client.config import Config, consumer_config, producer_config
from worker.kafka.client.membership import Membership
from worker.settings import KafkaSettings

SOURCE = Path(__file__).parent
BUILT = Path(__file__).parents[2] / "build" / "native"
FLAGS = ("-std=gnu11", "-O3", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-pthread")
# Differences from the worker's clients: no statistics, and a report of each answer; the worker counts references.
CONSUMER: Config = {"statistics.interval.ms": 0}
PRODUCER: Config = {"statistics.interval.ms": 0, "delivery.report.only.error": False}
DEFAULT_TOPIC_BYTES = 1_048_588  # the default `max.message.bytes`, which the worker asks the broker for at its start


class NoProgramError(Exception):
    """The program cannot be built here."""


@cache
def program() -> Path:
    """Returns the program, and builds it if need be. Raises `NoProgramError`."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoProgramError("no C compiler on the PATH")
    kafka = _library(Path(confluent_kafka.__file__).parent.with_suffix(".libs"), "librdkafka*.so*")
    runtime = _library(Path(onnxruntime.__file__).parent / "capi", "libonnxruntime.so.*")
    sources = sorted(SOURCE.glob("*.[ch]"))
    said = b"".join(map(Path.read_bytes, sources)) + f"{FLAGS} {kafka} {runtime}".encode()
    path = BUILT / f"worker-{hashlib.sha256(said).hexdigest()[:12]}"
    if not path.exists():
        _build(compiler, path, [source for source in sources if source.suffix == ".c"], kafka, runtime)
    return path


def why_absent() -> str | None:
    """Returns why there is no program here, or None if there is one."""
    try:
        program()
    except NoProgramError as error:
        return str(error)
    return None


def words(bootstrap: str, requests: str, responses: str, group: str) -> list[str]:
    """Returns the worker's client settings, in the form of the program's command line."""
    kafka = KafkaSettings(
        bootstrap_servers=bootstrap, request_topics=(requests,), response_topic=responses, group_id=group
    )
    clients = {
        "consumer": consumer_config(kafka, Membership("consumer", "")) | CONSUMER,
        "producer": producer_config(kafka, DEFAULT_TOPIC_BYTES, DEFAULT_TOPIC_BYTES) | PRODUCER,
    }
    return [
        f"{client}:{name}={str(value).lower() if isinstance(value, bool) else value}"
        for client, config in clients.items()
        for name, value in config.items()
    ]


def _library(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise NoProgramError(f"the wheel brings no {pattern}")
    return found[0]


def _build(compiler: str, path: Path, sources: list[Path], kafka: Path, runtime: Path) -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    named = BUILT / "libonnxruntime.so.1"  # the library's own name, by which a linked program looks for it
    named.unlink(missing_ok=True)
    named.symlink_to(runtime)
    places = [f"-Wl,-rpath,{kafka.parent}", f"-Wl,-rpath,{BUILT}"]
    command = [compiler, *FLAGS, *map(str, sources), "-o", str(path), str(kafka), str(named), *places]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode:
        raise NoProgramError(f"it does not build: {said.stderr.strip().splitlines()[0]}")

"""A contender as a process: the worker (ours or another checkout's), one in C, a loop written by hand, or a peer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.bench.loops.by_hand import LOOPS
from tests.bench.loops.task import Task
from tests.bench.measuring import native
from tests.bench.measuring.ground import Job, settings
from tests.kafka.cluster import fresh
from worker.core.failures import Stop
from worker.tools.load.replica import Replica
from worker.tools.load.usage import Usage, usage_of

WORKER, NATIVE = "worker", "native"
ROOT = Path(__file__).parents[3]
PEERS_PYTHON = ROOT / "build" / "peers" / "bin" / "python"
PEERS_LOCK = ROOT / "tests" / "bench" / "peers.txt"
# Each peer with the distribution whose version matters.
PEERS = {
    "faststream": "faststream",
    "arroyo": "sentry-arroyo",
    "quix": "quixstreams",
    "quix_sink": "quixstreams",
    "mlserver": "mlserver",
}


@dataclass(frozen=True, slots=True)
class Running:
    """One that runs. `replica`: when it is the worker."""

    name: str
    pid: int
    job: Job
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None
    replica: Replica | None = None

    def why_dead(self) -> str | None:
        """What it said last, if it has ended."""
        try:
            if self.replica is not None:
                self.replica.check()
        except Stop as stop:
            return f"{self.name}: {stop}"
        if self.process is None or self.log is None or self.process.poll() is None:
            return None
        return f"{self.name} exited with {self.process.returncode}:\n{self.log.read_text(errors='replace')[-2000:]}"

    @property
    def usage(self) -> Usage:
        """So far, its children's too."""
        usage = usage_of(_family(self.pid))
        assert usage is not None, f"{self.name} has ended"
        return usage


def _family(pid: int) -> list[int]:
    """A process and all below it (Linux)."""
    below: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile, as threads do
            below += map(int, (thread / "children").read_text().split())
    return [pid, *(each for child in below for each in _family(child))]


@contextmanager
def running(name: str, job: Job, responses: str, rate: int = 0) -> Iterator[Running]:
    """A contender that has just been started; killed in the end. `worker@DIR` is another checkout's worker.

    `rate` is the most records a second, for a pass-through.
    """
    kind, _, root = name.partition("@")
    if kind == WORKER:
        with _worker(job, responses, Path(root).resolve() if root else None) as replica:
            yield Running(name, replica.pid, job, replica=replica)
        return
    log_path = job.model.parent / f"{name}.log"
    with log_path.open("wb") as log, _process(name, job, responses, rate, log.fileno()) as process:
        try:
            yield Running(name, process.pid, job, process, log_path)
        finally:
            process.kill()


def _worker(job: Job, responses: str, root: Path | None) -> Replica:
    """Just started, with its defaults but for the job's batch and settings."""
    chosen = settings(job.cluster, ",".join(job.requests), responses, job.model, job.batch) | dict(job.settings)
    return Replica(chosen, os.environ, root=root)


def _process(name: str, job: Job, responses: str, rate: int, log: int) -> subprocess.Popen[bytes]:
    bootstrap, requests, group = job.cluster.bootstrap_servers, ",".join(job.requests), fresh("bench")
    words = Task(bootstrap, requests, responses, group, str(job.model), job.batch, rate).words()
    if name == NATIVE:
        program = [str(native.program()), *words, *native.words(bootstrap, requests, responses, group)]
    elif name in PEERS:
        program = [str(PEERS_PYTHON), "-m", f"tests.bench.peers.{name}", *words]
    else:
        assert name in LOOPS, f"no contender {name}"
        program = [sys.executable, "-m", "tests.bench.loops.by_hand", name, *words]
    return subprocess.Popen(program, stdout=log, stderr=log, cwd=ROOT)  # noqa: S603  # ours


@cache
def why_absent(name: str) -> str | None:
    """Why a contender cannot take part here: a peer that is not installed, a program that cannot be built."""
    if name == NATIVE:
        return native.why_absent()
    if name not in PEERS:
        return None
    if not PEERS_PYTHON.exists():
        return "not installed: `make bench` installs it"
    program = [str(PEERS_PYTHON), "-W", "ignore", "-c", f"import tests.bench.peers.{name}"]
    said = subprocess.run(program, capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S603  # ours
    return f"not installed: {said.stderr.strip().splitlines()[-1]}" if said.returncode else None


def peer_versions() -> dict[str, str]:
    """As their lock has them, and of the clients below them."""
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", PEERS_LOCK.read_text(), re.MULTILINE))
    return {name: locked[name] for name in sorted({*PEERS.values(), "confluent-kafka", "aiokafka", "onnxruntime"})}

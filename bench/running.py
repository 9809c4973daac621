"""Starts contenders as processes: the worker (ours or another checkout's), the one in C, loops by hand, and peers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench import native
from bench.ground import NATIVE, ROOT, WORKER, Job, settings
from bench.loops import by_hand, polls, records
from bench.loops.task import Task
from tests.kafka.cluster import fresh
from worker.core.failures import Stop
from worker.tools.processes import Replica

PEERS_PYTHON = ROOT / "build" / "peers" / "bin" / "python"
PEERS_LOCK = ROOT / "bench" / "peers.txt"
# Each peer, and the distribution whose version is shown.
PEERS = {
    "faststream": "faststream",
    "arroyo": "sentry-arroyo",
    "quix_sink": "quixstreams",
    "quix_state": "quixstreams",
    "quix_fraud": "quixstreams",
    "quix_fraud_sink": "quixstreams",
    "mlserver": "mlserver",
}
KEY_BY_KEY = "key_by_key"
_PROCESSOR_TIME = 2  # the number of `clock_getcpuclockid` for the CPU time of a process with all its threads


@dataclass(frozen=True, slots=True)
class Running:
    """A contender that runs. `replica` is set if it is the worker."""

    name: str
    pid: int
    job: Job
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None
    replica: Replica | None = None

    def why_dead(self) -> str | None:
        """Returns the end of its log if it has ended."""
        try:
            if self.replica is not None:
                self.replica.check()
        except Stop as stop:
            return f"{self.name}: {stop}"
        if self.process is None or self.log is None or self.process.poll() is None:
            return None
        return f"{self.name} exited with {self.process.returncode}:\n{self.log.read_text(errors='replace')[-2000:]}"

    def check(self) -> None:
        """Fails if it has ended."""
        assert (why := self.why_dead()) is None, why

    def total(self, metric: str) -> float:
        """Returns the value of a worker's metric. Fails for other contenders."""
        assert self.replica is not None, f"{self.name} has no metrics"
        return self.replica.totals()[metric]

    @property
    def cpu_seconds(self) -> float:
        """The CPU seconds so far of the process and its children."""
        # These clocks count nanoseconds; /proc/<id>/stat counts hundredths of a second.
        return sum(time.clock_gettime(~process << 3 | _PROCESSOR_TIME) for process in _family(self.pid))


def _family(pid: int) -> list[int]:
    """Returns the ids of a process and all its descendants (Linux)."""
    below: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            below += map(int, (thread / "children").read_text().split())
    return [pid, *(each for child in below for each in _family(child))]


@contextmanager
def running(name: str, job: Job, responses: str, rate: int = 0) -> Iterator[Running]:
    """Starts a contender, and kills it at the end. `worker@DIR` is another checkout's worker.

    `rate`: the most records a second of a pass-through.
    """
    kind, _, root = name.partition("@")
    if kind == WORKER:
        where = Path(root).resolve() if root else None
        with Replica(settings(job, responses), os.environ, config=job.config, root=where) as replica:
            yield Running(name, replica.pid, job, replica=replica)
        return
    with process(name, _program(name, job, responses, rate), job) as contender:
        yield contender


@contextmanager
def process(name: str, program: Sequence[str], job: Job) -> Iterator[Running]:
    """Starts a program as a contender, and kills it at the end. Its log is next to the model."""
    path = job.model.parent / f"{name}.log"
    with path.open("wb") as log, subprocess.Popen(program, stdout=log, stderr=log, cwd=ROOT) as started:
        try:
            yield Running(name, started.pid, job, started, path)
        finally:
            started.kill()


def _program(name: str, job: Job, responses: str, rate: int) -> list[str]:
    bootstrap, requests, group = job.cluster.bootstrap_servers, ",".join(job.requests), fresh("bench")
    words = Task(bootstrap, requests, responses, group, str(job.model), job.batch, rate).words()
    if name == NATIVE:
        return [str(native.program()), *words, *native.words(bootstrap, requests, responses, group)]
    if name in PEERS:
        return [str(PEERS_PYTHON), "-m", f"bench.peers.{name}", *words]
    if name == KEY_BY_KEY:
        return [sys.executable, "-m", "bench.loops.key_by_key", *words]
    if name.startswith(records.PREFIX) and name != "hand_loop":
        return [sys.executable, "-m", "bench.loops.records", name, *words]
    assert name in {**by_hand.LOOPS, **polls.LOOPS}, f"no contender {name}"
    return [sys.executable, "-m", f"bench.loops.{'polls' if name in polls.LOOPS else 'by_hand'}", name, *words]


@cache
def why_absent(name: str) -> str | None:
    """Returns why a contender cannot take part here: a peer is not installed, or a program cannot be built."""
    if name == NATIVE:
        return native.why_absent()
    if name not in PEERS:
        return None
    if not PEERS_PYTHON.exists():
        return "not installed: `make bench` installs it"
    program = [str(PEERS_PYTHON), "-W", "ignore", "-c", f"import bench.peers.{name}"]
    said = subprocess.run(program, capture_output=True, text=True, check=False, cwd=ROOT)
    return f"not installed: {said.stderr.strip().splitlines()[-1]}" if said.returncode else None


def peer_versions() -> dict[str, str]:
    """Returns the versions in the peers' lock file: of the peers, and of the clients that they use."""
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", PEERS_LOCK.read_text(), re.MULTILINE))
    return {name: locked[name] for name in sorted({*PEERS.values(), "confluent-kafka", "aiokafka", "onnxruntime"})}

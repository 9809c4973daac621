"""A contender as a process: the worker (ours or another checkout's), a loop of `contenders`, or a peer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.contenders import LOOPS
from tests.bench.ground import Job, settings
from tests.bench.task import Task
from tests.kafka.cluster import fresh
from tests.kafka.replica import Replica, cpu_seconds

WORKER = "worker"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Running:
    """One that runs. `replica`: when it is the worker."""

    name: str
    pid: int
    log: Path
    process: subprocess.Popen[bytes] | None = None
    replica: Replica | None = None

    def why_dead(self) -> str | None:
        """What it said last, if it has ended."""
        if self.process is None or self.process.poll() is None:
            return None
        return f"{self.name} exited with {self.process.returncode}:\n{self.log.read_text(errors='replace')[-2000:]}"

    @property
    def cpu(self) -> float:
        """Seconds of the processor so far, its children's too."""
        return sum(map(cpu_seconds, family(self.pid)))


def family(pid: int) -> list[int]:
    """A process and all below it (Linux)."""
    below = [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]
    return [pid, *(each for child in below for each in family(child))]


@contextmanager
def running(name: str, job: Job, responses: str) -> Iterator[Running]:
    """A contender at work; killed in the end. `worker@DIR` is another checkout's worker."""
    kind, _, root = name.partition("@")
    if kind == WORKER:
        chosen = settings(job.cluster, ",".join(job.requests), responses, job.model, job.batch) | dict(job.settings)
        home = Path(root).resolve() if root else None
        with Replica(chosen, job.model.parent, fresh("bench"), root=home) as replica:
            yield Running(name, replica.pid, job.model.parent, replica=replica.wait_until_ready())
        return
    log_path = job.model.parent / f"{name}.log"
    with log_path.open("wb") as log, _process(name, job, responses, log.fileno()) as process:
        try:
            yield Running(name, process.pid, log_path, process)
        finally:
            process.kill()


def _process(name: str, job: Job, responses: str, log: int) -> subprocess.Popen[bytes]:
    assert name in LOOPS, f"no contender {name}"
    bootstrap, requests = job.cluster.bootstrap_servers, ",".join(job.requests)
    task = Task(bootstrap, requests, responses, fresh("bench"), str(job.model), job.batch)
    program = [sys.executable, "-m", "tests.bench.contenders", name, *task.words()]
    return subprocess.Popen(program, stdout=log, stderr=log, cwd=ROOT)  # noqa: S603  # ours

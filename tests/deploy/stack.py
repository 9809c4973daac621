"""The compose file as its users have it: brought up under a name of its own, disturbed, watched, and taken down.

Owns the project's containers and what was sent to them. All is done with the docker command line, as people do it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tests.kafka.auditor import Auditor, Commits
from tests.kafka.broker import free_port
from tests.kafka.checker import RAW, Reference, Verdict, judge
from tests.kafka.cluster import TIMEOUT, Cluster, Sent, fresh
from tests.kafka.publisher import Acknowledged, SteadyPublisher

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "worker/tools/demo/digits.onnx"
UP_WITHIN = 600.0  # a first build fetches 70 MB of wheels, seconds
RATE = 500.0  # requests per second, a fraction of what one worker bears beside everything else on a small machine
PIXELS = np.random.default_rng(7).random((4096, 64), dtype=np.float32)


def no_engine() -> str | None:
    """Why no compose file can be run here; None when it can."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    for asked in (["docker", "info"], ["docker", "compose", "version"]):
        found = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        if found.returncode:
            return f"{' '.join(asked)}: {found.stderr.strip().splitlines()[-1]}"
    return None


class Stack:
    """One compose project. `with` takes it down, its volume too."""

    def __init__(self) -> None:
        self.project = fresh("compose")
        self._port = free_port()
        self.address = f"localhost:{self._port}"

    def compose(self, *words: str) -> str:
        """`docker compose …` for this project: its standard output. Fails the test when it fails."""
        return _docker("compose", "--project-name", self.project, *words, KAFKA_PORT=str(self._port))

    def sh(self, commands: str) -> str:
        """Commands as people type them, on this project. Fails the test when one fails."""
        return _run("sh", "-ec", commands, COMPOSE_PROJECT_NAME=self.project, KAFKA_PORT=str(self._port))

    def up(self, workers: int = 2) -> float:
        """So many workers, all healthy. Returns the seconds it took."""
        began = time.monotonic()
        self.compose("up", "--wait", "--quiet-pull", "--scale", f"worker={workers}")
        return time.monotonic() - began

    def workers(self) -> list[str]:
        """The containers of the workers that run, by id."""
        return self.compose("ps", "--quiet", "worker").split()

    def stop(self, container: str) -> int:
        """`docker stop`: SIGTERM, and SIGKILL after the grace period. Returns the exit code."""
        _docker("stop", container)
        return int(self.inspect(container)["State"]["ExitCode"])

    def kill(self, container: str) -> None:
        """`docker kill`: no farewell."""
        _docker("kill", container)

    def inspect(self, name: str) -> dict[str, Any]:
        """What the engine knows of a container or an image."""
        found: dict[str, Any] = json.loads(_docker("inspect", name))[0]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            error.add_note(self.compose("logs", "--no-color", "--tail", "40"))
        self.compose("--profile", "publisher", "down", "--volumes", "--timeout", "5")


class Audience:
    """A stack's publisher and auditor. What they saw adds up, so each test asks for the repeats since it began."""

    def __init__(self, stack: Stack) -> None:
        self._cluster = Cluster(stack.address)
        self._acknowledged: Acknowledged = {}
        self._publisher: SteadyPublisher | None = None
        self._topic, answers, self._group = "requests", "answers", "inference-worker"
        self.partitions = self._cluster.partitions(self._topic)
        self._commits = Commits(self._cluster, self._group)
        self.auditor = Auditor(
            self._cluster,
            request_topics=[self._topic],
            response_topic=answers,
            partitions=self._cluster.partitions(answers),
            group=self._group,
            requests=self.acknowledged,
        )

    def acknowledged(self) -> Acknowledged:
        """What the workers owe an answer to."""
        publisher = self._publisher
        return self._acknowledged | (publisher.acknowledged.copy() if publisher else {})

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """A steady load of keyed rows; all are acknowledged when it ends."""
        first = len(self._acknowledged)
        with SteadyPublisher(self._cluster, lambda number: (self._topic, _row(first + number)), RATE) as publisher:
            self._publisher = publisher
            yield
            self._acknowledged |= publisher.stop()
        self._publisher = None

    def wait_for_progress(self) -> float:
        """Until something is committed in every partition that was not when this began. Returns the seconds."""
        began = time.monotonic()
        before = self._commits.of(self._topic, self.partitions)
        while any(at <= before.get(p, -1) for p, at in self._now().items()):
            assert time.monotonic() - began < 2 * TIMEOUT, f"committed {before}, then {self._now()}"
            time.sleep(0.05)
        return time.monotonic() - began

    def _now(self) -> dict[int, int]:
        return dict.fromkeys(range(self.partitions), -1) | self._commits.of(self._topic, self.partitions)

    def shares(self) -> list[int]:
        """How many partitions each member of the group has."""
        asked = self._cluster.admin.describe_consumer_groups([self._group], request_timeout=TIMEOUT)
        return [len(member.assignment.topic_partitions) for member in asked[self._group].result(TIMEOUT).members]

    def wait_for_shares(self, *shares: int) -> None:
        """Until the group's members have so many partitions each."""
        deadline = time.monotonic() + 2 * TIMEOUT
        while sorted(self.shares()) != sorted(shares):
            assert time.monotonic() < deadline, f"members have {self.shares()} partitions, not {shares}"
            time.sleep(0.2)

    def verdict(self) -> Verdict:
        """What came of all that was sent so far, once each has an answer or the time is over."""
        owed = self.acknowledged()
        self.auditor.wait_for(owed)
        # Others publish here too, by `docker compose run publish`.
        ours = [answer for answer in self.auditor.answers if answer.source in owed]
        wrong = Reference(MODEL.read_bytes()).wrong_values(ours, owed)
        assert not wrong, f"{len(wrong)} wrong values: {wrong[:3]}"
        return judge(ours, owed, self.auditor.unsafe_commits)

    def close(self) -> None:
        """Stop looking, and let go of every connection while there is a broker to say goodbye to."""
        self.auditor.close()
        self._commits.close()
        del self._cluster, self.auditor


def _row(number: int) -> Sent:
    row: bytes = PIXELS[number % len(PIXELS)].tobytes()
    return Sent(b"key-%d" % (number % 97), row, [("content-type", RAW.encode())])


def _docker(*words: str, **environment: str) -> str:
    return _run("docker", *words, **environment)


def _run(*words: str, **environment: str) -> str:
    # Nothing of whoever runs the tests: MODEL or MAX_BATCH_SIZE in their shell would be another stack.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT") if name in os.environ}
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=UP_WITHIN,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)} exited with {done.returncode}:\n{done.stderr[-4000:]}"
    return done.stdout

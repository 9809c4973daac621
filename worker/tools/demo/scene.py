"""Where the demo takes place: a mock broker in this process, the processes that answer, and the load that they get.

A request's key is its number, which comes back with the answer. Its latency counts from the instant when it was due.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from worker.core.failures import BadConfiguration, DeadlineMissed
from worker.core.records import Record
from worker.settings import Connection
from worker.tools.closing import Closing
from worker.tools.demo.digits import MODEL, ReadDigit, guess, held_out, requests
from worker.tools.kafka.embedded import CLIENT_CONFIG, EmbeddedBroker
from worker.tools.kafka.publisher import Publisher
from worker.tools.kafka.reader import Reader

# A start takes two seconds on an idle machine. These end only a process that hangs.
_START_TIMEOUT_S = 120.0
_SILENCE_S = 30.0
_LOOK_S = 0.005
_AT_ONCE = 200  # requests that are handed over before the answers are looked at again
# Silence after which the broker gives a dead worker's partitions to another, milliseconds.
SESSION_TIMEOUT_MS = 3000
SHOWN = 8  # digits that are drawn


class Contender(Closing):
    """A process that answers requests, with its log."""

    def __init__(self, name: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.name = name
        self.is_killed = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=environ
        )

    @property
    def log(self) -> str:
        """Its beginning. Read where it lies: the process goes on writing at the position of the same file."""
        return os.pread(self._log.fileno(), 8192, 0).decode(errors="replace")

    @property
    def page(self) -> str:
        """The address of its live page."""
        found = re.search(r'"page": "([^"]+)"', self.log)
        return found[1] if found else ""

    def wait_until_ready(self) -> None:
        """Until it has partitions. Raises `Stop` with the end of the log when it never has."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while "partitions_assigned" not in self.log:
            self.check()
            if time.monotonic() > deadline:
                raise DeadlineMissed(
                    f"{self.name} has no partitions after {_START_TIMEOUT_S:g} s; its log begins:\n{self.log}"
                )
            time.sleep(0.02)

    def check(self) -> None:
        """Raises `Stop` with the end of the log when the process is gone and was not killed."""
        if not self.is_killed and self._process.poll() is not None:
            raise BadConfiguration(f"{self.name} ended with {self._process.returncode}; its log begins:\n{self.log}")

    def kill(self) -> None:
        self.is_killed = True
        self._process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@dataclass(slots=True)
class Tally:
    """What became of a load. `waited`: the seconds from each request's due instant to its answer, by its number."""

    requests: int
    waited: dict[int, float] = field(default_factory=dict)
    repeats: int = 0
    right: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    took: float = 0.0
    newest: list[ReadDigit] = field(default_factory=list)

    @property
    def missing(self) -> int:
        return self.requests - len(self.waited)

    @property
    def rate(self) -> float:
        return len(self.waited) / self.took

    def latency_ms(self, part: float) -> float:
        return sorted(self.waited.values())[int(part * (len(self.waited) - 1))] * 1000


class Scene(Closing):
    """Owns the broker and all that has to do with it. One load at a time."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._broker = self._stack.enter_context(EmbeddedBroker())
        for topic in ("requests", "answers", "rejected"):
            self._broker.create_topic(topic)
        kafka = Connection(bootstrap_servers=self._broker.bootstrap_servers, config=CLIENT_CONFIG)
        self._publisher = Publisher(kafka, "requests")
        self._reader = self._stack.enter_context(Reader(kafka, "answers"))
        self._reader.start_at(self._reader.ends)
        self._images = held_out()
        self._requests = requests(self._images)
        self._contenders: list[Contender] = []
        self._loads = 0

    def plain_loop(self) -> Contender:
        loop = str(Path(__file__).with_name("plain_loop.py"))
        return self._start("the plain loop", [loop, self._broker.bootstrap_servers, str(MODEL)], os.environ)

    def worker(self) -> Contender:
        own = {
            "KAFKA__BOOTSTRAP_SERVERS": self._broker.bootstrap_servers,
            "KAFKA__REQUEST_TOPICS": "requests",
            "KAFKA__RESPONSE_TOPIC": "answers",
            "KAFKA__DEAD_LETTER_TOPIC": "rejected",
            "KAFKA__GROUP_ID": "digits",
            "KAFKA__SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
            "KAFKA__CONFIG": json.dumps(CLIENT_CONFIG),
            "MODEL__PATH": str(MODEL),
            "MODEL__DEVICE": "cpu",
            "BATCHING__MAX_BATCH_SIZE": "64",
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WORKER_")}
        environ = kept | {f"WORKER_{name}": value for name, value in own.items()}
        return self._start("the worker", ["-m", "worker", "run"], environ)

    def _start(self, name: str, command: Sequence[str], environ: Mapping[str, str]) -> Contender:
        contender = self._stack.enter_context(Contender(name, command, environ))
        self._contenders.append(contender)
        return contender

    def load(
        self, count: int, rate: float | None, watch: Callable[[float, Tally], object], broken_every: int = 0
    ) -> Tally:
        """So many requests, at a rate or all at once (None), until each is answered or none comes for long.

        Raises `Stop` when a process ends that was not killed. `watch` is called with the seconds since the beginning.
        `broken_every`: every so manieth request lacks a part of its value.
        """
        self._loads += 1
        tally, sent, heard_at, began = Tally(count), 0, 0.0, time.monotonic()
        while tally.missing and tally.took - heard_at < _SILENCE_S:
            due = count if rate is None else min(count, int(tally.took * rate) + 1)
            for number in range(sent, min(due, sent + _AT_ONCE)):
                self._publish(number, is_broken=bool(broken_every) and number % broken_every == broken_every // 2)
                sent = number + 1
            self._publisher.poll()
            answers = self._reader.read(0.0 if sent < due else _LOOK_S)
            tally.took = time.monotonic() - began
            for answer in answers:
                heard_at = tally.took
                load, _, at = (answer.key or b"").partition(b"-")
                if int(load) == self._loads:
                    self._hear(tally, int(at), answer, rate)
            for contender in self._contenders:
                contender.check()
            watch(tally.took, tally)
        return tally

    def _publish(self, number: int, *, is_broken: bool) -> None:
        headers, value = self._requests[number % len(self._requests)]
        key = b"%d-%d" % (self._loads, number)
        while not self._publisher.publish(value[:100] if is_broken else value, key, headers):
            self._publisher.poll(_LOOK_S)

    def _hear(self, tally: Tally, number: int, answer: Record, rate: float | None) -> None:
        if number in tally.waited:
            tally.repeats += 1
            return
        tally.waited[number] = tally.took - (0.0 if rate is None else number / rate)
        found, labels = guess(number, answer), self._images.labels
        if found.digit is None:
            tally.errors[json.loads(answer.value or b"{}").get("error", "without a reason")] += 1
        tally.right += found.digit == labels[number % len(labels)]
        tally.newest = [*tally.newest[1 - SHOWN :], found]

    def close(self) -> None:
        self._stack.close()

"""Loads of `inference-worker bench` on the benchmarks' topics: how long each request waits, and the most that comes
through.

A wait counts from the instant at which a request was due, not from that at which it was sent: a publisher that falls
behind hides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tests.bench.measuring.ground import HEADERS, PARTITIONS, Headers, Job, raw_values, response_topic
from tests.bench.measuring.running import Running, running
from worker.codecs.examples import EncodedRequest
from worker.core.records import Record
from worker.settings import Connection
from worker.tools.kafka.reader import Reader
from worker.tools.load.figures import Heard, window_flow
from worker.tools.load.generator import Examine, Generator, Site
from worker.tools.load.pace import Now, Sent, Window

OUTSTANDING = 4096  # requests of a closed loop
GIVE_UP = 120.0  # seconds without the last answer
# The publisher's, ms. At 0 the thread of an idempotent librdkafka 2.16 client never rests: half of a core at 37,000
# requests a second, which is then missing where it is to be measured; at 2 it is a tenth (measured 2026).
LINGER = 2

Floats = NDArray[np.float64]


class Verdict(NamedTuple):
    """The error code of an answer, empty for a result; when the broker appended it, seconds since the epoch."""

    code: str
    appended_at: float


class Answers(NamedTuple):
    """In the order in which they were read, seconds: from due to read, the instant (monotonic); verdicts if wanted."""

    waited: Floats
    read_at: Floats
    verdicts: Sequence[Verdict]


@dataclass(frozen=True, slots=True)
class Timetable:
    """A pace: requests that are due at these ascending seconds after the beginning."""

    dues: Floats

    def ready(self, now: Now) -> int:
        return int(np.searchsorted(self.dues, now.elapsed, side="right")) - now.sent

    def is_over(self, now: Now) -> bool:
        return now.sent >= len(self.dues)

    def until_next(self, now: Now) -> float:
        return max(0.0, float(self.dues[now.sent]) - now.elapsed)


class Load:
    """A generator of requests, turned to one contender's topics after the other."""

    def __init__(self, kafka: Connection, requests: Sequence[EncodedRequest], examine: Examine | None = None) -> None:
        self._kafka = kafka
        self._stack = ExitStack()
        self._generator = self._stack.enter_context(Generator(requests, examine))

    @classmethod
    def of_rows(cls, bootstrap_servers: str, headers: Headers = HEADERS, examine: Examine | None = None) -> Self:
        """A thousand different rows of random floats, with these headers."""
        named = tuple((name, value or b"") for name, value in headers)
        return cls(connection(bootstrap_servers), [EncodedRequest(named, value) for value in raw_values()], examine)

    def open(self, requests: str, responses: str) -> None:
        """Use these topics from now on."""
        self._generator.open(Site(self._kafka, requests, responses, "", ""))

    def answers(self, dues: Floats, check: Callable[[], None] = lambda: None) -> Answers:
        """Every answer to requests that are due at these ascending seconds from now. `check` may fail meanwhile."""
        sent, heard = self.run(dues, check)
        return Answers(heard.instants - sent.began - dues[heard.numbers], heard.instants, heard.findings)

    def latencies(self, dues: Floats, check: Callable[[], None] = lambda: None) -> Floats:
        """Seconds from due to read of each request, in the order of the requests."""
        sent, heard = self.run(dues, check)
        found = np.empty(len(dues))
        found[heard.numbers] = heard.instants - sent.began
        return found - dues

    def run(self, dues: Floats, check: Callable[[], None] = lambda: None) -> tuple[Sent, Heard]:
        """What was sent, due at these ascending seconds from now, and its answers, every one of them."""
        sent, heard = self._generator.run(Timetable(dues), check, GIVE_UP)
        assert len(heard.numbers) == len(dues), f"{len(heard.numbers)} of {len(dues)} answers after {GIVE_UP:.0f} s"
        return sent, heard

    def wait_until_answering(self) -> None:
        """A contender that has only just joined its group is no measure of anything."""
        self.latencies(steady(10, 0.5))

    def most(self, seconds: float, outstanding: int = OUTSTANDING) -> float:
        """Answers per second over so many seconds in which so many requests are always outstanding."""
        pace = Window(outstanding, outstanding, seconds)
        return window_flow(pace, *self._generator.run(pace, lambda: None, GIVE_UP)).rate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@contextmanager
def answering(name: str, job: Job, *loads: Load, config: Mapping[str, str] | None = None) -> Iterator[Running]:
    """A contender that has answered its first requests, with fresh topics for itself and these loads.

    `job` needs no request topics; `config` is the response topic's.
    """
    requests = job.cluster.create_topic("bench-requests", partitions=PARTITIONS)
    job = replace(job, requests=[requests])
    with response_topic(job.cluster, config=config) as responses, running(name, job, responses) as contender:
        for load in loads:
            load.open(requests, responses)
            load.wait_until_answering()
        yield contender
    job.cluster.delete_topic(requests)


def connection(bootstrap_servers: str) -> Connection:
    """Of publishers and readers."""
    return Connection(bootstrap_servers=bootstrap_servers, config={"linger.ms": str(LINGER)})


def steady(rate: float, seconds: float) -> Floats:
    """When requests are due at this rate."""
    return np.arange(round(rate * seconds)) / rate


def verdict(_number: int, answer: Record) -> Verdict:
    """Of one answer, in a topic that stamps its records itself."""
    assert answer.timestamp_ms is not None
    return Verdict((dict(answer.headers).get("error-code") or b"").decode(), answer.timestamp_ms / 1000)


def append_times(bootstrap_servers: str, topic: str) -> Floats:
    """When the broker appended each record that can be read now, sorted; seconds since the epoch, to the millisecond.

    The topic stamps its records itself (`message.timestamp.type=LogAppendTime`).
    """
    with Reader(connection(bootstrap_servers), topic) as reader:
        times = [(record.timestamp_ms or 0) / 1000 for record in reader.up_to_ends(reader.beginnings)]
    return np.sort(np.array(times))

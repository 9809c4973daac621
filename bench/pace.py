"""Paced loads on the benchmarks' topics: the wait of each request, and the most that comes through.

The load is that of `inference-worker bench`. A wait counts from the instant at which a request was due, not from the
instant at which it was sent: a publisher that falls behind hides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.ground import GIVE_UP, HEADERS, PARTITIONS, Headers, Job, raw_values, response_topic
from bench.running import Running, running
from worker.codecs.examples import EncodedRequest
from worker.settings import Connection
from worker.tools.bench.figures import Heard, Now, Pace, Sent, Window, window_flow
from worker.tools.bench.generator import Generator, Site

OUTSTANDING = 4096  # requests of a closed loop
# The publisher's, ms. At 0 the thread of an idempotent librdkafka 2.16 client never rests: half of a core at 37,000
# requests a second, which is then missing where it is to be measured; at 2 it is a tenth (measured 2026).
LINGER = 2

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timetable(Pace):
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

    def __init__(self, kafka: Connection, requests: Sequence[EncodedRequest]) -> None:
        self._kafka = kafka
        self._generator = Generator(requests)

    @classmethod
    def of_rows(cls, bootstrap_servers: str, headers: Headers = HEADERS) -> Self:
        """A thousand different rows of random floats, with these headers."""
        named = tuple((name, value or b"") for name, value in headers)
        return cls(connection(bootstrap_servers), [EncodedRequest(named, value) for value in raw_values()])

    def open(self, requests: str, responses: str) -> None:
        """Use these topics from now on."""
        self._generator.open(Site(self._kafka, requests, responses, "", ""))

    def run(self, dues: Floats, check: Callable[[], None] = lambda: None) -> tuple[Sent, Heard]:
        """The load, due at these ascending seconds from now, and every one of its answers. `check` may fail."""
        sent, heard = self._generator.run(Timetable(dues), check, GIVE_UP)
        assert len(heard.numbers) == len(dues), f"{len(heard.numbers)} of {len(dues)} answers after {GIVE_UP:.0f} s"
        return sent, heard

    def latencies(self, dues: Floats, check: Callable[[], None] = lambda: None) -> Floats:
        """Seconds from due to read of each request, in the order of the requests."""
        sent, heard = self.run(dues, check)
        found = np.empty(len(dues))
        found[heard.numbers] = heard.instants - sent.began
        return found - dues

    def wait_until_answering(self) -> None:
        """A contender that has only just joined its group is no measure of anything."""
        self.latencies(steady(10, 0.5))

    def most(self, seconds: float, outstanding: int = OUTSTANDING) -> float:
        """Answers per second over so many seconds in which so many requests are always outstanding."""
        pace = Window(outstanding, outstanding, seconds)
        return window_flow(pace, *self._generator.run(pace, lambda: None, GIVE_UP)).requests_per_second

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._generator.close()


@contextmanager
def answering(name: str, job: Job, *loads: Load) -> Iterator[Running]:
    """A contender that has answered its first requests, with fresh topics for itself and these loads.

    `job` needs no request topics.
    """
    requests = job.cluster.create_topic("bench-requests", partitions=PARTITIONS)
    job = replace(job, requests=[requests])
    with response_topic(job.cluster) as responses, running(name, job, responses) as contender:
        for load in loads:
            load.open(requests, responses)
            load.wait_until_answering()
        yield contender
    job.cluster.delete_topic(requests)


def connection(bootstrap_servers: str) -> Connection:
    """The connection of publishers and readers."""
    return Connection(bootstrap_servers=bootstrap_servers, config={"linger.ms": str(LINGER)})


def steady(rate: float, seconds: float) -> Floats:
    """The instants at which requests are due at this rate."""
    return np.arange(round(rate * seconds)) / rate

"""Paced loads on the benchmarks' topics: they measure the wait of each request, and the maximum rate.

The load generator is that of `inference-worker bench`. A wait counts from the instant when a request was due, not from
the instant when it was sent, so a late publisher hides nothing.
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
# The publisher's linger, ms. At 0 the thread of an idempotent librdkafka 2.16 client never rests: at 37,000 requests a
# second it takes half a core away from the contender; at 2 it takes a tenth (measured 2026).
LINGER = 2

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timetable(Pace):
    """A pace whose requests are due at these ascending seconds after the beginning."""

    dues: Floats

    def ready(self, now: Now) -> int:
        return int(np.searchsorted(self.dues, now.elapsed, side="right")) - now.sent

    def is_over(self, now: Now) -> bool:
        return now.sent >= len(self.dues)

    def until_next(self, now: Now) -> float:
        return max(0.0, float(self.dues[now.sent]) - now.elapsed)


class Load:
    """A load generator that serves one contender after the other, each with its own topics."""

    def __init__(self, kafka: Connection, requests: Sequence[EncodedRequest]) -> None:
        self._kafka = kafka
        self._generator = Generator(requests)

    @classmethod
    def of_rows(cls, bootstrap_servers: str, headers: Headers = HEADERS) -> Self:
        """Makes a load of a thousand different rows of random floats, with these headers."""
        named = tuple((name, value or b"") for name, value in headers)
        return cls(connection(bootstrap_servers), [EncodedRequest(named, value) for value in raw_values()])

    def open(self, requests: str, responses: str) -> None:
        """Use these topics from now on."""
        self._generator.open(Site(self._kafka, requests, responses, "", ""))

    def run(self, dues: Floats, check: Callable[[], None] = lambda: None) -> tuple[Sent, Heard]:
        """Run a load that is due at these ascending seconds from now. Returns all its answers. `check` may fail."""
        sent, heard = self._generator.run(Timetable(dues), check, GIVE_UP)
        assert len(heard.numbers) == len(dues), f"{len(heard.numbers)} of {len(dues)} answers after {GIVE_UP:.0f} s"
        return sent, heard

    def latencies(self, dues: Floats, check: Callable[[], None] = lambda: None) -> Floats:
        """Returns the seconds of each request from due to read, in the order of the requests."""
        sent, heard = self.run(dues, check)
        found = np.empty(len(dues))
        found[heard.numbers] = heard.instants - sent.began
        return found - dues

    def wait_until_answering(self) -> None:
        """Wait until the contender answers, because one that has only just joined its group is slow at first."""
        self.latencies(steady(10, 0.5))

    def most(self, seconds: float, outstanding: int = OUTSTANDING) -> float:
        """Measures answers per second for so many seconds, in which `outstanding` requests are always outstanding."""
        pace = Window(outstanding, outstanding, seconds)
        return window_flow(pace, *self._generator.run(pace, lambda: None, GIVE_UP)).requests_per_second

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._generator.close()


@contextmanager
def answering(name: str, job: Job, *loads: Load) -> Iterator[Running]:
    """Starts a contender with fresh topics for itself and these loads, and waits for its first answers.

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
    """Returns the connection of publishers and readers."""
    return Connection(bootstrap_servers=bootstrap_servers, config={"linger.ms": str(LINGER)})


def steady(rate: float, seconds: float) -> Floats:
    """Returns the instants at which requests are due at this rate."""
    return np.arange(round(rate * seconds)) / rate

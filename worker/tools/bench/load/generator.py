"""The load: one process that publishes, one that reads the answers, so that neither holds the other up.

A request carries its number in `correlation-id`, which every contender echoes. The numbers of a load begin with a mark
of its own, so an answer that comes late is not taken for another load's. Publisher, reader and parent share four
counters and the machine's monotonic clock.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection as Pipe
from multiprocessing.sharedctypes import RawArray
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from worker.codecs.examples import EncodedRequest
from worker.core.failures import DeadlineMissed, Incomplete
from worker.core.records import Headers, Record
from worker.settings import Connection
from worker.tools.bench.figures import Heard
from worker.tools.bench.load.children import Child
from worker.tools.bench.load.pace import Backlog, Pace, Sender, Sent, Steady
from worker.tools.kafka.publisher import PATIENCE, Publisher
from worker.tools.kafka.reader import READ_AT_MOST, Reader

# Many keys, so that the partitions get equal shares.
_KEYS = [b"key-%d" % number for number in range(997)]
_LOOK_S = 0.02
# No answer for so long: none will come.
_SILENCE_S = 30.0
# Places in the shared counters.
_SENT, _ANSWERED, _EXPECTED, _HALT = range(4)
_UNKNOWN = -1


class Site(NamedTuple):
    """How brokers are reached, where a contender finds requests and puts answers and dead letters, in which group."""

    kafka: Connection
    requests: str
    answers: str
    rejected: str
    group: str


class Order(NamedTuple):
    """A load for the publisher: where to send what, and the mark of its numbers."""

    site: Site
    mark: bytes
    pace: Pace


class Generator:
    """Both processes, and the way to give them loads, one at a time."""

    def __init__(self, requests: Sequence[EncodedRequest]) -> None:
        """The requests of all loads, taken in turns."""
        self._shared = RawArray("q", 4)
        self._stack = ExitStack()
        self._publisher = self._stack.enter_context(
            Child("the publisher", _publish_loads, tuple(requests), self._shared)
        )
        self._reader = self._stack.enter_context(Child("the reader", _read_loads, self._shared))
        self._site: Site | None = None
        self._loads = 0

    @property
    def sent(self) -> int:
        """Requests of this load so far."""
        return int(self._shared[_SENT])

    @property
    def answered(self) -> int:
        """Answers of this load so far."""
        return int(self._shared[_ANSWERED])

    def open(self, site: Site) -> None:
        """Turn to these topics, which are empty. Raises `Stop` when they cannot be read."""
        self._site = site
        self._reader.send(site)
        self._reader.receive()

    def publish(self, pace: Backlog) -> Sent:
        """Send a load before anybody answers. Returns once it is acknowledged; `collect` comes next."""
        self._begin(pace)
        return self._sent(lambda: None)

    def collect(self, sent: Sent, watch: Callable[[], None], limit: float) -> Heard:
        """Its answers: all of them, unless `limit` seconds go by or nothing comes. `watch` is called all the time."""
        self._shared[_EXPECTED] = sent.requests
        seen, heard_at, begun = -1, 0.0, time.monotonic()
        while not self._reader.has_sent(_LOOK_S):
            watch()
            now = time.monotonic()
            if self.answered != seen:
                seen, heard_at = self.answered, now
            if now > min(heard_at + _SILENCE_S, begun + limit):
                self._shared[_HALT] = 1
        heard: Heard = self._reader.receive()
        return heard

    def run(self, pace: Pace, watch: Callable[[], None], limit: float) -> tuple[Sent, Heard]:
        """A load from its first request to its last answer, or as `collect` ends it."""
        self._begin(pace)
        sent = self._sent(watch)
        return sent, self.collect(sent, watch, limit)

    def _begin(self, pace: Pace) -> None:
        assert self._site is not None
        self._loads += 1
        mark = b"%x-" % self._loads
        self._shared[:] = [0, 0, _UNKNOWN, 0]
        self._reader.send(mark)
        self._publisher.send(Order(self._site, mark, pace))

    def _sent(self, watch: Callable[[], None]) -> Sent:
        while not self._publisher.has_sent(_LOOK_S):
            watch()
        sent: Sent = self._publisher.receive()
        return sent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


def _publish_loads(orders: Pipe, requests: Sequence[EncodedRequest], shared: Any) -> None:
    while True:
        order: Order = orders.recv()
        publisher = Publisher(_in_time(order.site.kafka, order.pace), order.site.requests)
        sent = _sender(publisher, requests, order.mark, shared).run(order.pace)
        if waiting := publisher.flush(PATIENCE):
            raise DeadlineMissed(f"{waiting} requests were not acknowledged within {PATIENCE:g} s")
        if publisher.refused:
            raise Incomplete(f"{publisher.refused} requests were refused: {publisher.refusal}")
        orders.send(sent)


def _in_time(kafka: Connection, pace: Pace) -> Connection:
    """In an open loop a request leaves when it is due; elsewhere it waits for company, which costs the broker less."""
    linger = "0" if isinstance(pace, Steady) else "5"
    return kafka.model_copy(update={"config": {"linger.ms": linger, **kafka.config}})


def _sender(publisher: Publisher, requests: Sequence[EncodedRequest], mark: bytes, shared: Any) -> Sender:
    heads: list[tuple[Headers, bytes]] = [(request.headers, request.value) for request in requests]
    kinds, keys = len(heads), len(_KEYS)

    def publish(number: int) -> None:
        headers, value = heads[number % kinds]
        named = (*headers, ("correlation-id", mark + b"%d" % number))
        while not publisher.publish(value, _KEYS[number % keys], named):
            publisher.poll(_LOOK_S)

    def serve(sent: int) -> None:
        shared[_SENT] = sent
        publisher.poll()

    return Sender(publish, serve, lambda: int(shared[_ANSWERED]), time.monotonic, time.sleep)


def _read_loads(orders: Pipe, shared: Any) -> None:
    with ExitStack() as stack:
        reader: Reader | None = None
        while True:
            order = orders.recv()
            if isinstance(order, Site):
                stack.close()
                reader = stack.enter_context(Reader(order.kafka, order.answers))
                reader.start_at(reader.beginnings)
                orders.send("ready")
            else:
                assert reader is not None
                orders.send(_Listening(order).run(reader, shared))


class _Listening:
    """The answers of one load."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._numbers = array("q")
        self._instants = array("d")
        self._seen: set[int] = set()
        self._repeated = 0
        self._errors: Counter[str] = Counter()
        self._error: str | None = None

    def run(self, reader: Reader, shared: Any) -> Heard:
        """Until all that is expected has come, or the parent calls it off."""
        reads = full = 0
        while not shared[_HALT] and not 0 <= shared[_EXPECTED] <= len(self._seen):
            records = reader.read(_LOOK_S)
            now = time.monotonic()
            reads += bool(records)
            full += len(records) >= READ_AT_MOST
            for record in records:
                self._hear(record, now)
            shared[_ANSWERED] = len(self._seen)
        return Heard(
            np.array(self._numbers),
            np.array(self._instants),
            self._repeated,
            full / max(1, reads),
            dict(self._errors),
            self._error,
        )

    def _hear(self, record: Record, now: float) -> None:
        headers = dict(record.headers)
        name = headers.get("correlation-id") or b""
        if not name.startswith(self._mark):
            return  # of an earlier load
        number = int(name[len(self._mark) :])
        if number in self._seen:
            self._repeated += 1
            return
        self._seen.add(number)
        self._numbers.append(number)
        self._instants.append(now)
        if headers.get("status") != b"ok":
            self._errors[(headers.get("error-code") or b"unknown").decode(errors="replace")] += 1
            self._error = self._error or (record.value or b"").decode(errors="replace")

"""The load: one process that publishes, one that reads the answers, so that neither holds the other up.

A request's key is its number, which every contender sends back with the answer. The numbers of a load begin with a mark
of its own, so an answer that comes late is not counted for another load, nor for another generator's. Publisher, reader
and parent share four counters and the machine's monotonic clock.
"""

from __future__ import annotations

import secrets
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection as Pipe
from multiprocessing.sharedctypes import RawArray
from typing import Any, NamedTuple

import numpy as np

from worker.codecs.examples import EncodedRequest
from worker.core.failures import DeadlineMissed, Incomplete
from worker.core.foreign_values import whole_number
from worker.core.records import Record
from worker.settings import Connection
from worker.tools.closing import Closing
from worker.tools.kafka.publisher import PATIENCE, Publisher
from worker.tools.kafka.reader import READ_AT_MOST, Reader
from worker.tools.load.children import Child
from worker.tools.load.figures import Heard
from worker.tools.load.pace import Backlog, Pace, Sent, Window, send

_LOOK_S = 0.02
# When no answer came for so long, the load is given up.
_SILENCE_S = 30.0
# The newest findings about answers are shown so often, and so many of them.
_SHOW_EVERY_S, _SHOWN = 0.2, 8
# Places in the shared counters.
_SENT, _ANSWERED, _EXPECTED, _HALT = range(4)
_UNKNOWN = -1

# What a caller wants to know about the answer to the request of that number. Runs in the reader's process, so it is a
# function of a module.
Examine = Callable[[int, Record], Any]


class Site(NamedTuple):
    """How brokers are reached; the topics of requests, answers and dead letters; and the contender's group."""

    kafka: Connection
    requests: str
    answers: str
    rejected: str
    group: str


class LoadOrder(NamedTuple):
    """A load for the publisher: where to send what, and the mark of its numbers."""

    site: Site
    mark: bytes
    pace: Pace


class Latest(NamedTuple):
    """From the reader while a load runs: what `examine` found in the newest answers."""

    findings: Sequence[Any]


class Generator(Closing):
    """Owns both processes, and gives them loads, one at a time.

    `latest`: what `examine` found in the newest answers so far.
    """

    def __init__(self, requests: Sequence[EncodedRequest], examine: Examine | None = None) -> None:
        """The requests of all loads, sent in turn. `Heard.findings` holds what `examine` returns for each answer."""
        self.latest: Sequence[Any] = ()
        self._shared = RawArray("q", 4)
        self._stack = ExitStack()
        self._publisher = self._stack.enter_context(
            Child("the publisher", _publish_loads, tuple(requests), self._shared)
        )
        self._reader = self._stack.enter_context(Child("the reader", _read_loads, self._shared, examine))
        self._site: Site | None = None
        self._name = secrets.token_hex(2)
        self._loads = 0

    @property
    def sent(self) -> int:
        return int(self._shared[_SENT])

    @property
    def answered(self) -> int:
        return int(self._shared[_ANSWERED])

    def open(self, site: Site) -> None:
        """Use these topics; what they hold already is not read. Raises `Stop` when they cannot be read."""
        self._site = site
        self._reader.send(site)
        self._reader.receive()

    def publish(self, pace: Backlog) -> Sent:
        """Send a load before a contender runs. Returns once it is acknowledged; `collect` comes next."""
        self._begin(pace)
        return self._sent(lambda: None)

    def collect(self, sent: Sent, watch: Callable[[], None], limit: float) -> Heard:
        """Its answers: all of them, unless `limit` seconds go by or none comes. `watch` is called all the time."""
        self._shared[_EXPECTED] = sent.requests
        seen, heard_at, begun = -1, 0.0, time.monotonic()
        while (heard := self._look(_LOOK_S)) is None:
            watch()
            now = time.monotonic()
            if self.answered != seen:
                seen, heard_at = self.answered, now
            if now > min(heard_at + _SILENCE_S, begun + limit):
                self._shared[_HALT] = 1
        return heard

    def run(self, pace: Pace, watch: Callable[[], None], limit: float) -> tuple[Sent, Heard]:
        """A load from its first request to its last answer, or as `collect` ends it."""
        self._begin(pace)
        sent = self._sent(watch)
        return sent, self.collect(sent, watch, limit)

    def _begin(self, pace: Pace) -> None:
        assert self._site is not None
        self._loads += 1
        mark = b"%s-%x-" % (self._name.encode(), self._loads)
        self.latest = ()
        self._shared[:] = [0, 0, _UNKNOWN, 0]
        self._reader.send(mark)
        self._publisher.send(LoadOrder(self._site, mark, pace))

    def _sent(self, watch: Callable[[], None]) -> Sent:
        while not self._publisher.has_sent(_LOOK_S):
            self._look(0.0)
            watch()
        sent: Sent = self._publisher.receive()
        return sent

    def _look(self, timeout: float) -> Heard | None:
        """What the reader says: its newest findings, kept in `latest`, or in the end all that it heard."""
        if not self._reader.has_sent(timeout):
            return None
        found: Heard | Latest = self._reader.receive()
        if isinstance(found, Heard):
            return found
        self.latest = found.findings
        return None

    def close(self) -> None:
        self._stack.close()


def _publish_loads(orders: Pipe, requests: Sequence[EncodedRequest], shared: Any) -> None:
    while True:
        order: LoadOrder = orders.recv()
        publisher = Publisher(_in_time(order.site.kafka, order.pace), order.site.requests)
        sent = _send(publisher, requests, order, shared)
        if waiting := publisher.flush(PATIENCE):
            raise DeadlineMissed(f"{waiting} requests were not acknowledged within {PATIENCE:g} s")
        if publisher.refused:
            raise Incomplete(f"{publisher.refused} requests were refused: {publisher.refusal}")
        orders.send(sent)


def _in_time(kafka: Connection, pace: Pace) -> Connection:
    """In an open loop a request leaves when it is due; elsewhere it waits for company, which costs the broker less."""
    linger = "5" if isinstance(pace, Window | Backlog) else "0"
    return kafka.model_copy(update={"config": {"linger.ms": linger, **kafka.config}})


def _send(publisher: Publisher, requests: Sequence[EncodedRequest], order: LoadOrder, shared: Any) -> Sent:
    kinds = len(requests)

    def publish(number: int) -> None:
        headers, value = requests[number % kinds]
        key = order.mark + b"%d" % number
        while not publisher.publish(value, key, headers):
            publisher.poll(_LOOK_S)

    def serve(sent: int) -> None:
        shared[_SENT] = sent
        publisher.poll()

    return send(order.pace, publish, serve, lambda: int(shared[_ANSWERED]), time.monotonic, time.sleep)


def _read_loads(orders: Pipe, shared: Any, examine: Examine | None) -> None:
    with ExitStack() as stack:
        reader: Reader | None = None
        while True:
            order = orders.recv()
            if isinstance(order, Site):
                stack.close()
                reader = stack.enter_context(Reader(order.kafka, order.answers))
                reader.start_at(reader.ends)
                orders.send("ready")
            else:
                assert reader is not None
                orders.send(_Listening(order, examine, orders).run(reader, shared))


class _Listening:
    """The answers of one load."""

    def __init__(self, mark: bytes, examine: Examine | None, pipe: Pipe) -> None:
        self._mark = mark
        self._examine = examine
        self._pipe = pipe
        self._numbers = array("q")
        self._instants = array("d")
        self._findings: list[Any] = []
        self._shown_at = 0.0
        self._seen: set[int] = set()
        self._repeated = 0
        self._errors: Counter[str] = Counter()
        self._error: str | None = None

    def run(self, reader: Reader, shared: Any) -> Heard:
        """Until all that is expected has come, or the parent gives it up."""
        reads = full = 0
        while not shared[_HALT] and not 0 <= shared[_EXPECTED] <= len(self._seen):
            records = reader.read(_LOOK_S)
            now = time.monotonic()
            reads += bool(records)
            full += len(records) >= READ_AT_MOST
            for record in records:
                self._hear(record, now)
            shared[_ANSWERED] = len(self._seen)
            self._show(now)
        return Heard(
            np.array(self._numbers),
            np.array(self._instants),
            self._repeated,
            full / max(1, reads),
            dict(self._errors),
            self._error,
            self._findings,
        )

    def _hear(self, record: Record, now: float) -> None:
        key = record.key or b""
        number = whole_number(key[len(self._mark) :]) if key.startswith(self._mark) else None
        if number is None:
            return  # of an earlier load
        if number in self._seen:
            self._repeated += 1
            return
        self._seen.add(number)
        self._numbers.append(number)
        self._instants.append(now)
        headers = dict(record.headers)
        if headers.get("status") != b"ok":
            self._errors[(headers.get("error-code") or b"unknown").decode(errors="replace")] += 1
            self._error = self._error or (record.value or b"").decode(errors="replace")
        if self._examine is not None:
            self._findings.append(self._examine(number, record))

    def _show(self, now: float) -> None:
        if self._findings and now >= self._shown_at + _SHOW_EVERY_S:
            self._pipe.send(Latest(self._findings[-_SHOWN:]))
            self._shown_at = now

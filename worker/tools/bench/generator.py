"""The load: a process that publishes, while this one reads the answers, so that neither holds the other up.

A request's key is its number, which every contender sends back with the answer. The numbers of a load begin with a mark
of its own, so an answer that comes late is not counted for another load, nor for another generator's. Both processes
share the count of answers and the machine's monotonic clock. A load takes place on a Kafka with topics made for it, or
on a mock broker inside this process.
"""

from __future__ import annotations

import secrets
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection as Pipe
from multiprocessing.sharedctypes import RawArray
from typing import Any, NamedTuple

import numpy as np

from worker.codecs.examples import EncodedRequest
from worker.core.failures import DeadlineMissed, Incomplete
from worker.core.foreign_values import whole_number
from worker.core.records import Record
from worker.settings import Connection
from worker.tools.bench.children import Child
from worker.tools.bench.loads import Heard, Now, Pace, Sent, Steady
from worker.tools.closing import Closing
from worker.tools.kafka.embedded import CLIENT_CONFIG, PARTITION_BYTES, PARTITIONS, EmbeddedBroker
from worker.tools.kafka.publisher import PATIENCE, Publisher
from worker.tools.kafka.reader import READ_AT_MOST, Reader

_LOOK_S = 0.02
# When no answer came for so long, the load is given up.
_SILENCE_S = 30.0
_NEWEST = 8  # findings that are shown
# So many are handed over before the clock and the count of answers are read again.
_CHUNK = 200
# The shortest sleep, seconds: a timer that is set more often costs time that the sender needs for sending.
_TICK_S = 0.0002
# Bytes that a mock topic keeps for sure: it drops the oldest silently, and keys do not share partitions equally. Each
# record has a key, headers and their frames besides its value.
_KEPT, _OVERHEAD = PARTITION_BYTES * PARTITIONS * 0.6, 150

# A caller's question about the answer to the request of that number.
Examine = Callable[[int, Record], Any]


class Site(NamedTuple):
    """The connection to the brokers; the topics of requests, answers and dead letters; and the contender's group."""

    kafka: Connection
    requests: str
    answers: str
    rejected: str
    group: str


@contextmanager
def mock_site(config: Mapping[str, str]) -> Iterator[Site]:
    """A site on a fresh mock broker. `config`: librdkafka keys for all clients."""
    with EmbeddedBroker() as broker:
        for topic in ("requests", "answers", "rejected"):
            broker.create_topic(topic)
        kafka = Connection(bootstrap_servers=broker.bootstrap_servers, config={**CLIENT_CONFIG, **config})
        yield Site(kafka, "requests", "answers", "rejected", "bench")


def kept_by_mock(request_bytes: int) -> int:
    """The number of unanswered requests of that size that are safe there."""
    return max(1, int(_KEPT / (request_bytes + _OVERHEAD)))


class Order(NamedTuple):
    """A load for the publisher: where to send what, and the mark of its numbers."""

    site: Site
    mark: bytes
    pace: Pace


class Generator(Closing):
    """Owns the publisher's process and a reader, and gives loads, one at a time."""

    def __init__(self, requests: Sequence[EncodedRequest], examine: Examine | None = None) -> None:
        """`requests` are sent in turns."""
        self._examine = examine
        self._shared = RawArray("q", 1)
        self._publisher = Child("the publisher", _publish, tuple(requests), self._shared)
        self._reading = ExitStack()
        self._reader: Reader | None = None
        self._site: Site | None = None
        self._listening: _Listening | None = None
        self._name = secrets.token_hex(2)
        self._loads = 0

    @property
    def answered(self) -> int:
        return int(self._shared[0])

    @property
    def latest(self) -> Sequence[Any]:
        """The findings about the newest answers."""
        return [] if self._listening is None else self._listening.findings[-_NEWEST:]

    def open(self, site: Site) -> None:
        """Use these topics; what they hold already is not read. Raises `Stop` when they cannot be read."""
        self._site = site
        self._reading.close()
        self._reader = self._reading.enter_context(Reader(site.kafka, site.answers))
        self._reader.start_at(self._reader.ends)

    def run(self, pace: Pace, watch: Callable[[], None], limit: float) -> tuple[Sent, Heard]:
        """A load from its first request to its last answer, or until none comes, or `limit` seconds after the last
        request. `watch` is called all the time.
        """
        assert self._site is not None
        assert self._reader is not None
        self._loads += 1
        mark = b"%s-%x-" % (self._name.encode(), self._loads)
        self._shared[0] = 0
        self._listening = listening = _Listening(mark, self._examine)
        self._publisher.send(Order(self._site, mark, pace))
        sent: Sent | None = None
        heard_at = ends = 0.0
        while sent is None or self.answered < sent.requests:
            records, now = self._reader.read(_LOOK_S), time.monotonic()
            listening.hear(records, now)
            self._shared[0] = listening.answered
            watch()
            heard_at = now if records else heard_at
            if sent is None and self._publisher.has_sent():
                sent, heard_at, ends = self._publisher.receive(), now, now + limit
            if sent is not None and now > min(ends, heard_at + _SILENCE_S):
                break
        return sent, listening.heard

    def close(self) -> None:
        self._reading.close()
        self._publisher.close()


def _publish(orders: Pipe, requests: Sequence[EncodedRequest], shared: Any) -> None:
    while True:
        order: Order = orders.recv()
        # In an open loop a request leaves when it is due; elsewhere it waits for company, which costs the broker less.
        linger = "0" if isinstance(order.pace, Steady) else "5"
        kafka = order.site.kafka
        kafka = kafka.model_copy(update={"config": {"linger.ms": linger, **kafka.config}})
        publisher = Publisher(kafka, order.site.requests)
        sent = _send(publisher, requests, order, shared)
        if waiting := publisher.flush(PATIENCE):
            raise DeadlineMissed(f"{waiting} requests were not acknowledged within {PATIENCE:g} s")
        if publisher.refused:
            raise Incomplete(f"{publisher.refused} requests were refused: {publisher.refusal}")
        orders.send(sent)


def _send(publisher: Publisher, requests: Sequence[EncodedRequest], order: Order, shared: Any) -> Sent:
    pace, kinds = order.pace, len(requests)
    began = time.monotonic()
    instants = array("d")
    while not pace.is_over(now := Now(time.monotonic() - began, len(instants), int(shared[0]))):
        count = min(_CHUNK, pace.ready(now))
        for number in range(now.sent, now.sent + count):
            headers, value = requests[number % kinds]
            while not publisher.publish(value, order.mark + b"%d" % number, headers):
                publisher.poll(_LOOK_S)
            instants.append(time.monotonic() - began)
        publisher.poll()
        if not count:
            time.sleep(max(_TICK_S, pace.until_next(now)))
    return Sent(began, np.array(instants))


class _Listening:
    """The answers of one load."""

    def __init__(self, mark: bytes, examine: Examine | None) -> None:
        self.findings: list[Any] = []
        self._mark = mark
        self._examine = examine
        self._numbers = array("q")
        self._instants = array("d")
        self._seen: set[int] = set()
        self._repeated = self._reads = self._full = 0
        self._errors: Counter[str] = Counter()
        self._error: str | None = None

    @property
    def answered(self) -> int:
        return len(self._seen)

    def hear(self, records: Sequence[Record], now: float) -> None:
        """Take one read's answers."""
        self._reads += bool(records)
        self._full += len(records) >= READ_AT_MOST
        for record in records:
            self._hear(record, now)

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
            self.findings.append(self._examine(number, record))

    @property
    def heard(self) -> Heard:
        """All of them."""
        return Heard(
            np.array(self._numbers),
            np.array(self._instants),
            self._repeated,
            self._full / max(1, self._reads),
            dict(self._errors),
            self._error,
            self.findings,
        )

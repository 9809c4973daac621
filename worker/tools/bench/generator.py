"""The load generator: one process publishes while this one reads the answers, so that neither delays the other.

A request's key is its number, and every contender sends it back with the answer. All numbers of a load begin with the
load's own mark. So a late answer is not counted for another load, nor for another generator's. Both processes share the
count of answers and the machine's monotonic clock. A load runs on a Kafka with topics made for it, or on a mock broker
inside this process.
"""

from __future__ import annotations

import secrets
import time
from array import array
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
from worker.kafka.reader import Reader
from worker.settings import Connection
from worker.tools.bench.figures import Heard, Now, Pace, Sent, Steady
from worker.tools.closing import Closing
from worker.tools.kafka.embedded import CLIENT_CONFIG, PARTITION_BYTES, PARTITIONS, EmbeddedBroker
from worker.tools.kafka.publisher import PATIENCE, Publisher
from worker.tools.processes import Child

_LOOK_S = 0.02
# Seconds without an answer after which a load is given up.
_SILENCE_S = 30.0
# Requests handed over before the clock and the count of answers are read again.
_CHUNK = 200
# The shortest sleep, seconds: setting a timer more often costs time that the sender needs for sending.
_TICK_S = 0.0002
# Bytes that a mock topic keeps for sure: it drops the oldest silently, and keys do not share partitions equally. A
# record has a key, headers and their frames in addition to its value.
_KEPT, _OVERHEAD = PARTITION_BYTES * PARTITIONS * 0.6, 150


class Site(NamedTuple):
    """The brokers and topics of a load: the connection, the three topics, and the contender's group."""

    kafka: Connection
    requests: str
    answers: str
    rejected: str
    group: str


@contextmanager
def mock_site(config: Mapping[str, str]) -> Iterator[Site]:
    """Opens a site on a fresh mock broker. `config`: librdkafka keys for all clients."""
    with EmbeddedBroker() as broker:
        for topic in ("requests", "answers", "rejected"):
            broker.create_topic(topic)
        kafka = Connection(bootstrap_servers=broker.bootstrap_servers, config={**CLIENT_CONFIG, **config})
        yield Site(kafka, "requests", "answers", "rejected", "bench")


def kept_by_mock(request_bytes: int) -> int:
    """Returns how many unanswered requests of that size a mock broker keeps for sure."""
    return max(1, int(_KEPT / (request_bytes + _OVERHEAD)))


class Generator(Closing):
    """Runs loads, one at a time. Owns the publisher's process and a reader."""

    def __init__(self, requests: Sequence[EncodedRequest]) -> None:
        """`requests` are sent in turn."""
        self._answered = RawArray("q", 1)  # shared with the publisher
        self._publisher = Child("the publisher", _publish, tuple(requests), self._answered)
        self._reading = ExitStack()
        self._opened: tuple[Site, Reader] | None = None
        self._name = secrets.token_hex(2)
        self._loads = 0

    @property
    def answered(self) -> int:
        """Number of answers of the present load."""
        return int(self._answered[0])

    def open(self, site: Site) -> None:
        """Use the topics of this site, from their ends on. Raises `Stop` if they cannot be read."""
        self._reading.close()
        reader = self._reading.enter_context(Reader(site.kafka, site.answers))
        reader.start_at(reader.ends)
        self._opened = site, reader

    def run(self, pace: Pace, watch: Callable[[], None], limit: float) -> tuple[Sent, Heard]:
        """Run a load until its last answer. It also ends if answers stop coming, or `limit` seconds after its last
        request. `watch` is called all the time.
        """
        assert self._opened is not None
        site, reader = self._opened
        self._loads += 1
        mark = b"%s-%x-" % (self._name.encode(), self._loads)
        listening = _Listening(mark)
        self._answered[0] = 0
        self._publisher.send((site, mark, pace))
        sent: Sent | None = None
        heard_at = ends = 0.0
        while sent is None or listening.answered < sent.requests:
            records, now = reader.read(_LOOK_S), time.monotonic()
            listening.hear(records, now)
            self._answered[0] = listening.answered
            watch()
            heard_at = now if records else heard_at
            if sent is None and self._publisher.has_sent:
                sent, heard_at, ends = self._publisher.receive(), now, now + limit
            if sent is not None and now > min(ends, heard_at + _SILENCE_S):
                break
        return sent, listening.heard

    def close(self) -> None:
        self._reading.close()
        self._publisher.close()


def _publish(orders: Pipe, requests: Sequence[EncodedRequest], answered: Any) -> None:
    while True:
        site, mark, pace = orders.recv()
        # In an open loop a request leaves when it is due. In a closed loop it may wait for others: fewer, larger sends.
        linger = "0" if isinstance(pace, Steady) else "5"
        kafka = site.kafka.model_copy(update={"config": {"linger.ms": linger, **site.kafka.config}})
        publisher = Publisher(kafka, site.requests)
        sent = _send(publisher, requests, mark, pace, answered)
        if waiting := publisher.flush(PATIENCE):
            raise DeadlineMissed(f"{waiting} requests were not acknowledged within {PATIENCE:g} s")
        if publisher.refused:
            raise Incomplete(f"{publisher.refused} requests were refused: {publisher.refusal}")
        orders.send(sent)


def _send(publisher: Publisher, requests: Sequence[EncodedRequest], mark: bytes, pace: Pace, answered: Any) -> Sent:
    began = time.monotonic()
    instants = array("d")
    while not pace.is_over(now := Now(time.monotonic() - began, len(instants), int(answered[0]))):
        count = min(_CHUNK, pace.ready(now))
        for number in range(now.sent, now.sent + count):
            headers, value = requests[number % len(requests)]
            while not publisher.publish(value, mark + b"%d" % number, headers):
                publisher.poll(_LOOK_S)
            instants.append(time.monotonic() - began)
        publisher.poll()
        if not count:
            time.sleep(max(_TICK_S, pace.until_next(now)))
    return Sent(began, np.array(instants))


class _Listening:
    """The answers of one load."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._found: dict[int, tuple[float, str]] = {}  # the instant and the error code, by the request's number
        self._repeated = 0
        self._error: str | None = None

    @property
    def answered(self) -> int:
        return len(self._found)

    def hear(self, records: Sequence[Record], now: float) -> None:
        """Note the answers among these records."""
        for record in records:
            key, headers, code = record.key or b"", dict(record.headers), ""
            number = whole_number(key[len(self._mark) :]) if key.startswith(self._mark) else None
            if number is None:  # an answer of an earlier load
                continue
            if number in self._found:
                self._repeated += 1
                continue
            if headers.get("status") != b"ok":
                code = (headers.get("error-code") or b"unknown").decode(errors="replace")
                self._error = self._error or (record.value or b"").decode(errors="replace")
            self._found[number] = now, code

    @property
    def heard(self) -> Heard:
        """All first answers so far, and the number of repeated ones."""
        numbers, instants = np.array(list(self._found), np.int64), np.array([at for at, _ in self._found.values()])
        return Heard(numbers, instants, [code for _, code in self._found.values()], self._repeated, self._error)

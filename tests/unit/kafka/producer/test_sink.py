"""The sink when the producer's queue is full, with a client that has room for a few messages."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Report

from tests.contract.test_sink import stretches
from tests.fakes import Clock, Onlooker
from tests.unit.kafka.client.test_config import settings
from worker.core.failures import KafkaFatal
from worker.core.ordering.ledger import Stretch
from worker.core.records import Fields
from worker.kafka.client.errors import ClientLog
from worker.kafka.client.membership import Membership
from worker.kafka.client.stranded import LOST_AFTER
from worker.kafka.cluster.topics import Topics
from worker.kafka.producer import sink
from worker.kafka.producer.sink import Destinations, KafkaSink, Receipt
from worker.kafka.transactions import transactional_producer
from worker.kafka.transactions.transactional_producer import TransactionalProducer

Headers = list[tuple[str, bytes | None]]


class NarrowClient:
    """Takes `room` messages at a time; a `poll` delivers all of them."""

    room = 3
    broken: Exception | None = None  # what `produce` raises

    def __init__(self, config: dict[str, Any], logger: Any = None) -> None:
        self.config = config
        self.delivered: list[tuple[str, bytes | None, bytes | None, int, Headers]] = []
        self.waits: list[float] = []  # the timeout of each poll
        self._queue: list[tuple[tuple[str, bytes | None, bytes | None, int, Headers], object]] = []

    def produce(  # noqa: PLR0917  # the client's own
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_delivery: object = None,
        partitioner: object = None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        if self.broken is not None:
            raise self.broken
        if len(self._queue) >= self.room:
            raise BufferError("Local: Queue full")
        self._queue.append(((topic, key, value, partition, list(headers or ())), on_delivery))

    def poll(self, timeout: float) -> int:
        self.waits.append(timeout)
        while self._queue:  # one by one, and releases its callback, as the client does
            message, _ = self._queue.pop(0)
            self.delivered.append(message)
        return 0

    def begin_transaction(self) -> None: ...

    def __len__(self) -> int:
        return len(self._queue)


def messages(numbers: range) -> Sequence[Fields]:
    return [("a", b"k", b"%d" % number, [("n", b"%d" % number)], 5, chosen(number)) for number in numbers]


def chosen(number: int) -> int | None:
    """The partition that every third answer's requester asks for."""
    return number % 4 if number % 3 == 0 else None


EXPECTED = [
    ("a", b"k", b"%d" % n, -1 if (wanted := chosen(n)) is None else wanted, [("n", b"%d" % n)]) for n in range(20)
]


class Refused:
    """The delivery report of a message."""

    def topic(self) -> str:
        return "a"


class Full(KafkaSink):
    """A sink with a narrow client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sink, "Producer", NarrowClient)
        topics = Topics({"a": 4}, {"a": 1_000}, Membership("consumer", "test"))
        self.clock = Clock()
        super().__init__(settings(), topics, logging.getLogger("kafka"), Onlooker(), clock=self.clock)

    @property
    def client(self) -> NarrowClient:
        return cast("NarrowClient", self._producer)


def test_what_a_full_queue_does_not_take_goes_later_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is dropped, overtaken or sent twice. A stretch returns when its last message is durable."""
    full = Full(monkeypatch)
    first, second = stretches(2, 10)

    full.send(messages(range(10)), first)
    full.send(messages(range(10, 20)), second)
    assert full.undelivered == 20
    reported: list[list[Stretch]] = []
    while full.undelivered:
        reported.append(list(full.poll(0.0)))
    reported.append(list(full.poll(0.0)))

    assert full.client.delivered == EXPECTED
    assert [stretch for stretches in reported for stretch in stretches] == [first, second]
    assert reported[0] == []


def test_a_stretch_that_is_durable_already_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no messages, or a flush has heard of them: then the client may have nothing more to say."""
    full = Full(monkeypatch)
    first, second = stretches(2)

    full.send([], first)
    assert list(full.poll(1.0)) == [first]
    full.send(messages(range(1)), second)
    assert list(full.poll(1.0)) == [second]

    assert full.client.waits[-2:] == [0.0, 1.0]


def test_a_client_that_takes_nothing_more_is_asked_for_the_refusal_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops taking messages a moment before it reports the refused one."""
    full = Full(monkeypatch)
    first, second = stretches(2, 3)
    full.send(messages(range(1)), first)
    full.client.broken = KafkaException(KafkaError(KafkaError._FATAL))
    polls = iter([KafkaException(KafkaError(KafkaError._GAPLESS_GUARANTEE)), None])

    def poll(_timeout: float) -> int:
        if (error := next(polls)) is not None:
            raise error
        ((_, receipt),) = full.client._queue
        cast("Receipt", receipt)(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), cast("Report", Refused()))
        return 1

    monkeypatch.setattr(full.client, "poll", poll)

    with pytest.raises(KafkaFatal, match="nothing past requests/0/0 is committed"):
        full.send(messages(range(1, 2)), second)


@pytest.mark.parametrize("is_told", [True, False])
def test_the_reason_is_the_refusal_and_no_message_that_was_let_go_for_it(
    monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    """The client may report purged messages first; they are the reason only if no refusal follows. None is durable."""
    full = Full(monkeypatch)
    full.send(messages(range(1)), *stretches(1))
    codes = iter([KafkaError._PURGE_QUEUE, *([KafkaError.MSG_SIZE_TOO_LARGE] if is_told else [])])

    def poll(_timeout: float) -> int:
        ((_, receipt),) = full.client._queue
        for code in codes:
            cast("Receipt", receipt)(KafkaError(code), cast("Report", Refused()))
            return 1
        return 0

    monkeypatch.setattr(full.client, "poll", poll)

    with pytest.raises(KafkaFatal, match="too large" if is_told else "Purged in queue"):
        full.poll(0.0)


def test_a_message_that_the_client_never_takes_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stretch is never reported as durable, although the client releases the callback."""
    full = Full(monkeypatch)
    (stretch,) = stretches(1)
    full.client.broken = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    with pytest.raises(KafkaFatal, match="does not take a record for a"):
        full.send(messages(range(1)), stretch)

    with pytest.raises(KafkaFatal, match="nothing past requests/0/0 is committed"):
        full.poll(0.0)


class Narrow(TransactionalProducer):
    """A transactional producer with a narrow client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transactional_producer, "Producer", NarrowClient)
        super().__init__({}, Destinations({"a": 4}), ClientLog(logging.getLogger("kafka")), {})

    @property
    def client(self) -> NarrowClient:
        return cast("NarrowClient", self._client)


def test_a_transaction_that_finds_no_room_cannot_be_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is away, and the loop must go on. A message is missing, so the transaction must fail."""
    narrow = Narrow(monkeypatch)
    (stretch,) = stretches(1, 4)
    narrow.begin()

    narrow.send(messages(range(4)), stretch)

    assert narrow.failure is not None
    assert "requests/0/0 to 3" in narrow.failure
    assert "Queue full" in narrow.failure
    narrow.begin()
    assert narrow.failure is None


def test_a_message_that_a_transaction_never_takes_spoils_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later messages are dropped."""
    narrow = Narrow(monkeypatch)
    (stretch,) = stretches(1)
    narrow.begin()
    narrow.client.broken = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    narrow.send(messages(range(4)), stretch)

    assert narrow.failure is not None
    assert "does not take the answer to requests/0/0 for topic a" in narrow.failure


def test_what_was_refused_is_told_and_what_was_taken_back_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """An abort purges unsent messages: that is no refusal, and the first refusal stays the reason."""
    narrow = Narrow(monkeypatch)
    heard = narrow.client.config["on_delivery"]

    heard(KafkaError(KafkaError._PURGE_QUEUE), Refused())
    heard(KafkaError(KafkaError._PURGE_INFLIGHT), Refused())
    heard(None, Refused())
    assert narrow.failure is None

    heard(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Refused())
    heard(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), Refused())

    assert str(narrow.failure).startswith("the broker refused a record for topic a as too large")
    assert narrow.refusal(None, "refused") is not None


def test_the_first_refusal_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The later ones are its consequences."""
    full = Full(monkeypatch)
    first, second = stretches(2)

    full._receipts.refuse(first, "the disk is full", "a", None)
    full._receipts.refuse(second, "out of order", "a", None)

    with pytest.raises(KafkaFatal, match=r"^the disk is full; nothing past requests/0/0 is committed"):
        full.poll(0.0)


class Answered:
    """A new client that the brokers answer."""

    def __init__(self, config: dict[str, Any]) -> None:
        assert config["bootstrap.servers"]

    def poll(self, timeout: float) -> None: ...
    def list_topics(self, timeout: float) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize("waiting", [0, 7])
def test_a_producer_that_has_lost_its_brokers_ends_the_worker(monkeypatch: pytest.MonkeyPatch, waiting: int) -> None:
    """It ends without waiting answers, too, since later ones would wait for ever. A new start makes a new client."""
    monkeypatch.setattr(sink, "Consumer", Answered)
    full = Full(monkeypatch)
    said = json.dumps({"brokers": {}, "msg_cnt": waiting})
    full.client.config["stats_cb"](said)
    full.poll(0.0)
    full.clock.now += LOST_AFTER

    full.client.config["stats_cb"](said)

    with pytest.raises(KafkaFatal, match="the producer has known no broker for 5 s"):
        full.poll(0.0)

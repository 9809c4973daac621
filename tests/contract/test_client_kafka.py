"""The client library's demands on Kafka's two clients hold for its tests' fakes and for the real ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from inference_client.exchange import Clients
from inference_client.kafka import Topics, connect
from tests.kafka.cluster import TIMEOUT, Cluster, Sent
from tests.unit.client.builders import FakeConsumer, FakeProducer, Record

HEADERS = [("status", b"ok"), ("null", None)]


class Stage(Protocol):
    """Both clients, and the events around them."""

    clients: Clients

    def arrive(self, *values: bytes) -> None:
        """Let answers with these values come."""

    def refuse(self) -> None:
        """Make the next produced record too large."""

    def lose(self, on_delivery: Callable[..., None]) -> None:
        """Produce a record that is never delivered."""


class FakeStage:
    """The unit tests' fakes."""

    def __init__(self) -> None:
        self._producer, self._consumer = FakeProducer(), FakeConsumer(1)
        self.clients = Clients(cast("Any", self._producer), self._consumer)

    def arrive(self, *values: bytes) -> None:
        self._consumer.arrived.extend(Record(HEADERS, value) for value in values)

    def refuse(self) -> None:
        self._producer.failure = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)

    def lose(self, on_delivery: Callable[..., None]) -> None:
        self._producer.produce("requests", b"", None, -1, on_delivery, None, 0, [])
        self._producer.fail(self._producer.sent[-1], KafkaError._MSG_TIMED_OUT)


class KafkaStage:
    """Real clients, as `connect` makes them."""

    def __init__(self, kafka: Cluster) -> None:
        self._kafka = kafka
        self._requests, self._answers = (kafka.create_topic(name, partitions=2) for name in ("requests", "answers"))
        self.clients = self._connect(kafka.bootstrap_servers)

    def _connect(self, servers: str, **config: object) -> Clients:
        topics = Topics(self._requests, self._answers, 0)
        return connect({"bootstrap.servers": servers, **config}, topics, TIMEOUT, lambda _: None)

    def arrive(self, *values: bytes) -> None:
        self._kafka.produce(self._answers, [Sent(None, value, HEADERS, partition=0) for value in values])

    def refuse(self) -> None:
        """Connect anew with a limit below the test's record."""
        self.clients = self._connect(self._kafka.bootstrap_servers, **{"message.max.bytes": 1000})

    def lose(self, on_delivery: Callable[..., None]) -> None:
        """Produce to a partition that does not exist."""
        self.clients.producer.produce(self._requests, b"", None, 99, on_delivery, None, 0, [])


@pytest.fixture(params=["fake", "kafka"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The fake stage, then the real one."""
    made: Stage = FakeStage() if request.param == "fake" else KafkaStage(request.getfixturevalue("kafka"))
    yield made
    made.clients.consumer.close()


def read(stage: Stage, count: int) -> Sequence[Any]:
    """Read `count` messages, as a turn does."""
    found: list[Any] = []
    deadline = time.monotonic() + TIMEOUT
    while len(found) < count:
        assert time.monotonic() < deadline
        first = stage.clients.consumer.poll(0.05)
        found += [] if first is None else [first, *stage.clients.consumer.consume(100, 0)]
    return found


def test_what_arrives_is_read_in_order_and_once(stage: Stage) -> None:
    """It comes with its headers; a poll of nothing returns None."""
    assert stage.clients.consumer.poll(0.0) is None

    stage.arrive(b"1", b"2", b"3")

    found = read(stage, 3)
    assert [(message.error(), message.value()) for message in found] == [(None, b"1"), (None, b"2"), (None, b"3")]
    assert list(found[0].headers()) == HEADERS
    assert stage.clients.consumer.poll(0.0) is None


def test_partitions_are_added_to_those_that_are_read(stage: Stage) -> None:
    """Partitions that are already read go on where they were."""
    stage.arrive(b"1")
    read(stage, 1)
    (known,) = stage.clients.consumer.assignment()

    stage.clients.consumer.incremental_assign([TopicPartition(known.topic, 1, 0)])
    stage.arrive(b"2")

    assert [at.partition for at in stage.clients.consumer.assignment()] == [0, 1]
    assert [message.value() for message in read(stage, 1)] == [b"2"]


def test_a_record_that_is_too_large_is_refused_at_once(stage: Stage) -> None:
    """`produce` itself raises."""
    stage.refuse()

    with pytest.raises(KafkaException) as caught:
        stage.clients.producer.produce("requests", bytes(2000), None, -1, lambda *_: None, None, 0, [])

    assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_failed_delivery_is_reported_in_a_poll(stage: Stage) -> None:
    """It is reported once, and in no other call."""
    reported: list[KafkaError] = []
    with suppress(KafkaException):
        stage.lose(lambda error, _: reported.append(error))
        assert reported == []
        deadline = time.monotonic() + TIMEOUT
        while not reported:
            assert time.monotonic() < deadline
            stage.clients.producer.poll(0.05)
        stage.clients.producer.poll(0.05)
        assert len(reported) == 1

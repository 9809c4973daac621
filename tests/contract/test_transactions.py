"""Every transactional producer's promises, which the fake and a real Kafka keep."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.contract.test_sink import stretches
from tests.contract.test_source import MEMBERSHIPS, Heard
from tests.fakes import Broker, Clock, FakeSource, FakeTransactions
from tests.kafka.cluster import Cluster, Reader, fresh
from worker.core.ordering.ledger import Stretch
from worker.core.records import Ending, Message, Partition
from worker.kafka.client.membership import TransactionalId, resolve_transactional_id
from worker.kafka.cluster.topics import Topics
from worker.kafka.transactions.kafka_transactions import KafkaTransactions
from worker.ports import Transactions
from worker.settings import KafkaSettings

PATIENCE = 60.0  # a broker may be starting meanwhile
GLANCE = 0.3  # seconds in which a wrong record would come


class Stage(Protocol):
    """A response topic of four partitions, an own request partition, and a transactional producer."""

    topic: str
    requests: Partition
    transactions: Transactions

    def values(self, count: int) -> list[bytes | None]:
        """The values that a reader of committed answers sees, exactly `count`; each partition's in order."""

    def committed(self) -> int | None:
        """The group's next offset of the request partition."""


class FakeStage:
    """The fake keeps these promises, or the tests of the delivery prove nothing."""

    topic = "answers"
    requests = Partition("requests", 0)

    def __init__(self) -> None:
        self._broker = Broker()
        clock = Clock()
        source = FakeSource(self._broker, clock)
        source.subscribe(Heard())
        source.assign(self.requests)
        source.poll(1, 0.0)
        self.transactions: Transactions = FakeTransactions(self._broker, clock, source)

    def values(self, count: int) -> list[bytes | None]:
        assert len(self._broker.answers) == count
        return [message.value for message in self._broker.answers]

    def committed(self) -> int | None:
        return self._broker.committed.get(self.requests)


class KafkaStage:
    """A real producer, and a consumer of its group that holds the request partition."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        name: TransactionalId | None = None,
        timeout_ms: int = 10_000,
        topic_config: Mapping[str, str] | None = None,
        config: dict[str, str] | None = None,
    ) -> None:
        """`name` None: a name of its own."""
        self.cluster = cluster
        self.topic = cluster.create_topic("answers", partitions=4, config=topic_config)
        self.requests = Partition(cluster.create_topic("requests"), 0)
        self.kafka = KafkaSettings(
            bootstrap_servers=cluster.bootstrap_servers,
            request_topics=(self.requests.topic,),
            response_topic=self.topic,
            group_id=fresh("group"),
            config=config or {},
        )
        cluster.set_session(self.kafka.group_id)
        self.consumer = member_of(self.kafka)
        self.member: Callable[[], object] = self.consumer.consumer_group_metadata
        self.producer = KafkaTransactions(
            self.kafka,
            Topics({self.topic: 4}, {self.topic: 1_000_000}, MEMBERSHIPS["kafka-consumer"]),
            name or resolve_transactional_id(None, self.kafka.group_id),
            timeout_ms,
            self._member,
            logging.getLogger("librdkafka"),
        )
        self.producer.wait_until_ready()
        self.transactions: Transactions = self.producer
        self._reader = Reader(cluster, self.topic)

    def values(self, count: int) -> list[bytes | None]:
        """Waits for the markers, which are written a moment after the commit is reported."""
        self._reader.read_until(count, PATIENCE)
        deadline = time.monotonic() + GLANCE
        while time.monotonic() < deadline:
            self._reader.read(0.05)
        assert len(self._reader.records) == count
        return [record.value for record in self._reader.records]

    def committed(self) -> int | None:
        """Asks as a reader of committed records: then the broker waits until no transaction's offset is pending."""
        (at,) = self.consumer.committed([TopicPartition(*self.requests)], PATIENCE)
        return at.offset if at.offset >= 0 else None

    def _member(self) -> object:
        return self.member()

    def close(self) -> None:
        self._reader.close()
        self.producer.close(PATIENCE)
        self.consumer.close()


def member_of(kafka: KafkaSettings) -> Consumer:
    """A consumer that has joined the group and holds partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": kafka.group_id,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(list(kafka.request_topics))
    deadline = time.monotonic() + PATIENCE
    while not consumer.assignment():
        assert time.monotonic() < deadline, "nothing is assigned"
        consumer.poll(0.05)
    return consumer


@pytest.fixture(params=["fake", "kafka"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """One stage for each implementation, except librdkafka's mock cluster: it shows open and aborted answers."""
    if request.param == "fake":
        yield FakeStage()
        return
    stage = KafkaStage(request.getfixturevalue("kafka"))
    yield stage
    stage.close()


def fill(stage: Stage, values: Sequence[bytes], key: bytes | None = b"k", taken: Sequence[Stretch] = ()) -> None:
    """Open a transaction with these answers in it."""
    stage.transactions.begin()
    for value, stretch in zip(values, taken or stretches(len(values)), strict=True):
        stage.transactions.send([Message(stage.topic, key, value, [], stretch.partition.number)], stretch)


def ending(stage: Stage) -> Ending:
    """Wait for the transaction's end and return it."""
    deadline = time.monotonic() + PATIENCE
    while (ended := stage.transactions.ended(0.05)) is None:
        assert time.monotonic() < deadline, "the transaction does not end"
    return ended


def test_answers_and_their_offset_are_there_together(stage: Stage) -> None:
    """Committed answers may be read, in order, and the group goes on behind them."""
    fill(stage, [b"%d" % n for n in range(50)])

    stage.transactions.commit({stage.requests: 50})
    ended = ending(stage)

    assert ended.failure is None
    assert ended.seconds > 0
    assert stage.values(50) == [b"%d" % n for n in range(50)]
    assert stage.committed() == 50


def test_what_is_open_is_read_by_none(stage: Stage) -> None:
    """No reader sees an answer before its transaction ends."""
    fill(stage, [b"open"])

    stage.transactions.serve(0.05)

    assert stage.values(0) == []
    assert stage.committed() is None
    stage.transactions.abort()
    ending(stage)


def test_what_was_taken_back_never_was(stage: Stage) -> None:
    """Its answers are never read, its end is a failure, and the next transaction works."""
    fill(stage, [b"wrong"])
    stage.transactions.serve(0.05)
    stage.transactions.abort()
    assert ending(stage).failure is not None

    fill(stage, [b"right"])
    stage.transactions.commit({stage.requests: 1})

    assert ending(stage).failure is None
    assert stage.values(1) == [b"right"]
    assert stage.committed() == 1


def test_offsets_alone_are_a_transaction(stage: Stage) -> None:
    """Records without an answer are committed like others."""
    stage.transactions.begin()

    stage.transactions.commit({stage.requests: 7})

    assert ending(stage).failure is None
    assert stage.committed() == 7


def test_transactions_follow_each_other(stage: Stage) -> None:
    """Each has an end of its own; after that the next one begins."""
    for next_offset in range(1, 4):
        fill(stage, [b"v"])
        stage.transactions.commit({stage.requests: next_offset})
        assert ending(stage).failure is None

    assert stage.values(3) == [b"v"] * 3
    assert stage.committed() == 3


def test_transactions_keep_the_order_of_a_key(stage: Stage) -> None:
    """Answers with one key are read in the order they were sent, across transactions."""
    for first in range(0, 60, 20):
        fill(stage, [b"%d" % n for n in range(first, first + 20)], key=b"same")
        stage.transactions.commit({stage.requests: first + 20})
        assert ending(stage).failure is None

    assert stage.values(60) == [b"%d" % n for n in range(60)]


def test_answers_without_a_key_keep_the_order_of_their_partition(stage: Stage) -> None:
    """Answers of one request partition go to one response partition."""
    fill(stage, [b"%d" % n for n in range(30)], key=None)

    stage.transactions.commit({stage.requests: 30})

    assert ending(stage).failure is None
    assert stage.values(30) == [b"%d" % n for n in range(30)]

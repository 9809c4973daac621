"""Each of our producers puts a key into the partition that Java's producer chooses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tests.contract.test_sink import stretches
from tests.kafka.cluster import Cluster, Reader, fresh
from worker.core.records import Message
from worker.kafka.client.config import transaction_config
from worker.kafka.client.errors import ClientLog
from worker.kafka.client.membership import Membership
from worker.kafka.cluster.topics import Topics
from worker.kafka.producer.sink import Destinations, KafkaSink
from worker.kafka.transactions.transactional_producer import TransactionalProducer
from worker.settings import KafkaSettings
from worker.tools.kafka.embedded import PARTITIONS, EmbeddedBroker
from worker.tools.kafka.publisher import Publisher

PATIENCE = 20.0
Produce = Callable[[Cluster, str, Sequence[bytes]], None]

# Java's hash of a key, from Kafka's own tests (`UtilsTest.testMurmur2`) and librdkafka's (`rdmurmur2.c`).
MURMUR2: Mapping[bytes, int] = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"kafka": 0xD067CF64,
    b"giberish123456789": 0x8F552B0C,
    b"1234": 0x9FC97B14,
    b"234": 0xE7C009CA,
    b"34": 0x873930DA,
    b"4": 0x5A4B5CA1,
    b"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x78424F1C,
    b"reAmbleWillBeRemoved,ThePrePartThatIs": 0x4A62B377,
    b"eAmbleWillBeRemoved,ThePrePartThatIs": 0xE0E4E09E,
    b"AmbleWillBeRemoved,ThePrePartThatIs": 0x62B8B43F,
}
JAVA_S = {key: (found & 0x7FFFFFFF) % PARTITIONS for key, found in MURMUR2.items()}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def settings(cluster: Cluster, topic: str) -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers=cluster.bootstrap_servers, request_topics=("r",), response_topic=topic, group_id="g"
    )


def answers_to(topic: str, keys: Sequence[bytes]) -> list[Message]:
    return [Message(topic, key, b"v", [], 1) for key in keys]


def by_the_sink(cluster: Cluster, topic: str, keys: Sequence[bytes]) -> None:
    topics = Topics({topic: PARTITIONS}, {topic: 1_000_000}, Membership("consumer", "test"))
    producer = KafkaSink(settings(cluster, topic), topics, logging.getLogger("librdkafka"))
    producer.send(answers_to(topic, keys), stretches(1)[0])
    assert producer.close(PATIENCE) == 0


def by_a_transaction(cluster: Cluster, topic: str, keys: Sequence[bytes]) -> None:
    config = transaction_config(settings(cluster, topic), fresh("id"), 10_000, 1_000_000, 1_000_000)
    log = ClientLog(logging.getLogger("librdkafka"))
    producer = TransactionalProducer(config, Destinations({topic: PARTITIONS}), log, {})
    assert producer.initialise(PATIENCE) is None
    producer.begin()
    producer.send(answers_to(topic, keys), stretches(1)[0])
    assert producer.failure is None
    assert producer.commit(PATIENCE) is None


def by_a_publisher(cluster: Cluster, topic: str, keys: Sequence[bytes]) -> None:
    publisher = Publisher(settings(cluster, topic), topic)
    assert all(publisher.publish(b"v", key, ()) for key in keys)
    assert publisher.flush(PATIENCE) == 0


@pytest.mark.parametrize("produce", [by_the_sink, by_a_transaction, by_a_publisher])
def test_a_key_goes_where_java_puts_it(broker: EmbeddedBroker, produce: Produce) -> None:
    """An application can join answers with a topic of its own by partition."""
    assert partitions_of(produce, broker) == JAVA_S


def partitions_of(produce: Produce, broker: EmbeddedBroker) -> Mapping[bytes | None, int]:
    """The partition of each key."""
    cluster, topic = Cluster(broker.bootstrap_servers), fresh("answers")
    broker.create_topic(topic)

    produce(cluster, topic, list(MURMUR2))

    with Reader(cluster, topic) as reader:
        reader.read_until(len(MURMUR2))
    return {record.key: record.partition for record in reader.records}

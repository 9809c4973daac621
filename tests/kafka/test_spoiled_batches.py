"""Batches spoiled on a broker's disk, on a real Kafka."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition

from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import Cluster
from tests.kafka.spoiled_batches import AS_ONE, SpoiledBatch, spoil, ten


def test_a_client_gets_nothing_of_a_spoiled_batch_from_the_spoiled_record_on(hurt_broker: JvmBroker) -> None:
    """Nor an error: what these tests rest on, also when the broker has started again since."""
    cluster = Cluster(hurt_broker.bootstrap_servers)
    topic = cluster.create_topic("spoiled")
    cluster.produce(topic, ten("a"), AS_ONE)
    cluster.produce(topic, ten("b"), AS_ONE)

    spoiled = spoil(hurt_broker.data, topic, 0, offset=3)
    before = _read(cluster, topic, 0)
    hurt_broker.stop()
    hurt_broker.start()

    assert spoiled == SpoiledBatch(0, 3, 9)
    assert before == _read(cluster, topic, 0) == [0, 1, 2]
    assert _read(cluster, topic, 5) == []
    assert _read(cluster, topic, 10) == list(range(10, 20))


def _read(cluster: Cluster, topic: str, start: int) -> list[int]:
    """The offsets that come within 2 s of the first, or within 5 s."""
    consumer = Consumer({**cluster.login, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, start)])
    offsets: list[int] = []
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None
            offsets.append(message.offset() or 0)
            until = min(until, time.monotonic() + 2.0)
    consumer.close()
    return offsets

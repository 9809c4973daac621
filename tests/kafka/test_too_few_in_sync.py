"""A response topic with fewer replicas in sync than it needs: it takes nothing, and an operator sees its name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.kafka.broker import JvmBroker, Seat, free_port, seats
from tests.kafka.cluster import TIMEOUT, Cluster, fresh
from tests.kafka.fixtures import or_skip
from tests.kafka.replica import Replica
from tests.kafka.scene import Scene, quick_at_least_once, raw

ON_BOTH = {"default.replication.factor": "2"}  # except the coordinators' own topics
COUNT = 200
HELD = 5  # seconds
TRANSACTION = {"DELIVERY__TRANSACTION_TIMEOUT_MS": "10000"}


class Pair(NamedTuple):
    """Two nodes. `other` is only a broker, and may be missing."""

    cluster: Cluster
    other: JvmBroker


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two brokers with all topics on both and all coordinators on the first."""
    (seat,) = seats(1)
    port = free_port()
    beside = Seat(2, port, free_port(), seat.voters, seat.cluster_id)
    alone = {**ON_BOTH, "process.roles": "broker", "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with ExitStack() as nodes:
        first = or_skip(lambda: JvmBroker(ON_BOTH, seat=seat))
        nodes.callback(first.remove)
        other = JvmBroker(alone, seat=beside)
        nodes.callback(other.remove)
        cluster = Cluster(first.start().bootstrap_servers)
        make_coordinators(cluster)
        other.start()
        wait_for_both(cluster)
        yield Pair(cluster, other)


def make_coordinators(cluster: Cluster) -> None:
    """Ask for coordinators, so that their topics are made on the brokers that run now."""
    producer = Producer({**cluster.login, "transactional.id": fresh("id")})
    producer.init_transactions(TIMEOUT)
    consumer = Consumer({**cluster.login, "group.id": fresh("group")})
    deadline = time.monotonic() + TIMEOUT
    while "__consumer_offsets" not in cluster.admin.list_topics(timeout=TIMEOUT).topics:
        assert time.monotonic() < deadline, "nobody coordinates groups"
        with suppress(KafkaException):
            consumer.committed([TopicPartition("none", 0)], 1.0)
    consumer.close()


def wait_for_both(cluster: Cluster) -> None:
    """Wait until a topic can be made on both brokers."""
    deadline = time.monotonic() + TIMEOUT
    while len(cluster.admin.list_topics(timeout=TIMEOUT).brokers) < 2:
        assert time.monotonic() < deadline, "the second broker does not join"
        time.sleep(0.1)


def undelivered(replica: Replica, topic: str) -> float:
    """The replica's number of undelivered messages for a topic."""
    return replica.metric("inference_worker_undelivered_messages", topic=topic)


@quick_at_least_once
def test_a_topic_below_its_minimum_is_named_until_it_takes_again(pair: Pair, tmp_path: Path, guarantee: str) -> None:
    """The metric, which has an alert, names it all the time. Then all is answered, and nothing twice."""
    settings = TRANSACTION if guarantee == "exactly_once" else {}
    with Scene(
        pair.cluster,
        tmp_path,
        settings,
        guarantee=guarantee,
        partitions=2,
        response_config={"min.insync.replicas": "2"},
    ) as scene:
        replica = scene.replica()
        scene.publish([raw(number) for number in range(COUNT)])
        scene.answers()
        pair.other.stop()

        scene.publish([raw(number) for number in range(COUNT, 2 * COUNT)])
        deadline = time.monotonic() + TIMEOUT
        while not undelivered(replica, scene.response_topic):
            assert time.monotonic() < deadline, "the topic still takes answers"
            time.sleep(0.1)
        waiting: list[float] = []
        for _ in range(HELD):
            time.sleep(1.0)
            waiting.append(undelivered(replica, scene.response_topic))
        pair.other.start()

        # A failed transaction's producer is replaced, and the next one has nothing to send until a broker is there.
        assert guarantee == "exactly_once" or min(waiting) > 0, waiting
        scene.expect_kept()
        scene.expect_right_values()
        deadline = time.monotonic() + TIMEOUT
        while undelivered(replica, scene.response_topic):
            assert time.monotonic() < deadline, "the topic is said to take nothing"
            time.sleep(0.1)

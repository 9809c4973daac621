"""A consumer's position on a real Kafka: after a rewind with a backlog, at a topic's end, after an outage."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.contract.test_source import MEMBERSHIPS, Heard
from tests.fakes import Onlooker
from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import Cluster, Sent, fresh
from tests.kafka.fixtures import NewBroker
from tests.kafka.scene import quick_classic, quick_consumer
from tests.kafka.test_source_sink import CONSUMER, PATIENCE, commit, joined, poll_until, read, settings
from worker.core.records import Partition
from worker.kafka.consumer.source import KafkaSource

BACKLOG = 10_000  # records of each partition, twice what the client reads ahead
REWINDS = 25


def send(cluster: Cluster, topic: str, count: int, partitions: int = 1) -> None:
    """Send `count` records to each partition."""
    cluster.produce(topic, [Sent(b"k", b"v", (), n % partitions) for n in range(count * partitions)])


def transaction(cluster: Cluster) -> Producer:
    """A producer with an open transaction."""
    producer = Producer({**cluster.login, "transactional.id": fresh("id"), "retry.backoff.ms": 2})
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def offsets_within(source: KafkaSource, seconds: float) -> list[int]:
    """The offsets that come in this time."""
    deadline = time.monotonic() + seconds
    found: list[int] = []
    while time.monotonic() < deadline:
        found += [record.offset for record in source.poll(1000, 0.02)]
    return found


@quick_consumer
def test_no_rewind_beside_a_backlog_leaves_out_or_repeats_a_record(kafka: Cluster, protocol: str) -> None:
    """This holds however much was read ahead, and while the source is paused."""
    topic = kafka.create_topic("requests", partitions=4)
    send(kafka, topic, BACKLOG, partitions=4)
    source = joined(settings(kafka, topic), Heard(), MEMBERSHIPS[f"kafka-{protocol}"])
    dice = random.Random(5)
    partitions = [Partition(topic, number) for number in range(4)]
    expected = dict.fromkeys(partitions, 0)

    def take(most: int) -> None:
        for record in source.poll(most, 0.05):
            assert record.offset == expected[record.partition], f"{record.source}, not {expected[record.partition]}"
            expected[record.partition] += 1

    for _ in range(REWINDS):
        for _ in range(dice.randrange(1, 5)):
            take(dice.randrange(1, 1500))
        rewound = {p: dice.randrange(expected[p] + 1) for p in dice.sample(partitions, dice.randrange(1, 5))}
        source.commit(rewound)
        while not source.commit_results():
            take(10)
        meanwhile: list[Callable[[], None]] = [source.pause, partial(take, 1)]
        dice.choice(meanwhile)()
        source.rewind(list(rewound))
        expected.update(rewound)
        take(100)
        source.resume()
    while expected != dict.fromkeys(partitions, BACKLOG):
        take(1000)

    source.close()


def test_a_rewind_waits_for_a_transaction_that_holds_the_offset(kafka: Cluster) -> None:
    """No record comes and the loop goes round until the outcome is known; then the outcome counts."""
    topic = kafka.create_topic()
    send(kafka, topic, 100)
    source = joined(settings(kafka, topic), Heard())
    read(source, 50)
    producer = transaction(kafka)
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 20)], source.member())

    source.rewind([Partition(topic, 0)])
    assert offsets_within(source, 1.5) == []
    producer.commit_transaction()

    assert [record.offset for record in read(source, 80)] == list(range(20, 100))
    source.close()


def test_a_rewind_while_the_broker_is_away_waits_for_it(hurt_broker: JvmBroker) -> None:
    """Hardly a poll blocks and nothing comes; in the end all records come from the committed offset on."""
    cluster = Cluster(hurt_broker.bootstrap_servers)
    topic = cluster.create_topic()
    send(cluster, topic, 100)
    source = joined(settings(cluster, topic), Heard())
    read(source, 50)
    source.commit({Partition(topic, 0): 20})
    poll_until(source, lambda: bool(source.commit_results()))
    hurt_broker.kill()

    source.rewind([Partition(topic, 0)])
    seconds = []
    for _ in range(40):
        began = time.monotonic()
        assert not source.poll(100, 0.02)
        seconds.append(time.monotonic() - began)
    hurt_broker.start()

    assert sorted(seconds)[30] < 1.0, seconds  # the machine may have stalled in a few
    assert max(seconds) < 10.0
    assert [record.offset for record in read(source, 80)] == list(range(20, 100))
    source.close()


def test_the_end_is_where_the_first_open_transaction_is(kafka: Cluster) -> None:
    """AUTO_OFFSET_RESET=latest: requests that become readable after the start are answered."""
    topic = kafka.create_topic()
    send(kafka, topic, 10)
    producer = transaction(kafka)
    producer.produce(topic, b"in a transaction", b"k")
    producer.flush()
    send(kafka, topic, 3)
    config = settings(kafka, topic, auto_offset_reset="latest")
    source = joined(config, Heard())
    poll_until(source, lambda: kafka.committed(config.group_id, topic) == {0: 10})

    producer.commit_transaction()

    assert [record.offset for record in read(source, 4)] == [10, 11, 12, 13]
    source.close()


@pytest.mark.parametrize(("reset", "published", "expected"), [("earliest", 0, 0), ("latest", 5, 10)])
def test_an_offset_beyond_the_end_holds_nothing_up(
    kafka: Cluster, caplog: pytest.LogCaptureFixture, reset: str, published: int, expected: int
) -> None:
    """The topic was made anew, or its log cut short: the policy says where to begin."""
    topic = kafka.create_topic()
    send(kafka, topic, 10)
    config = settings(kafka, topic, auto_offset_reset=reset)
    commit(config, TopicPartition(topic, 0, 1000))
    source = joined(config, heard := Heard(), onlooker=(onlooker := Onlooker()))
    poll_until(source, lambda: bool(heard.held))
    if published:
        poll_until(source, lambda: any("offset reset" in line for line in caplog.messages))
        offsets_within(source, 1.0)  # it asks where the end is
    send(kafka, topic, published)

    records = read(source, 10 if reset == "earliest" else published)

    assert records[0].offset == expected
    poll_until(source, lambda: bool(onlooker.lost))
    assert onlooker.lost == [(Partition(topic, 0), 1000, 0)]
    assert kafka.committed(config.group_id, topic) == {0: 1000 if reset == "earliest" else expected}
    source.rewind([Partition(topic, 0)])
    assert [record.offset for record in read(source, len(records))] == [record.offset for record in records]
    source.close()


@quick_classic
def test_a_transaction_that_is_open_holds_up_its_own_partition_alone(kafka: Cluster, protocol: str) -> None:
    """The group does not tell an offset in a dead replica's transaction until the transaction ends."""
    topic = kafka.create_topic(partitions=2)
    for partition in range(2):
        kafka.produce(topic, [Sent(b"k", b"v", partition=partition) for _ in range(10)])
    config = settings(kafka, topic)
    commit(config, TopicPartition(topic, 0, 2), TopicPartition(topic, 1, 2))
    dead = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": fresh("dead")})
    dead.init_transactions(PATIENCE)
    dead.begin_transaction()
    member = Consumer({"group.id": config.group_id, "bootstrap.servers": kafka.bootstrap_servers})
    dead.send_offsets_to_transaction([TopicPartition(topic, 1, 5)], member.consumer_group_metadata(), PATIENCE)
    member.close()
    source = joined(config, Heard(), MEMBERSHIPS[f"kafka-{protocol}"])

    untouched = read(source, 8)
    dead.commit_transaction(PATIENCE)
    its_own = read(source, 5)

    assert [(r.partition.number, r.offset) for r in untouched] == [(0, offset) for offset in range(2, 10)]
    assert [(r.partition.number, r.offset) for r in its_own] == [(1, offset) for offset in range(5, 10)]
    source.close()


def test_a_member_that_fell_back_keeps_the_same_promises(new_broker: NewBroker) -> None:
    """The second consumer rewinds and starts at the end as the first one would."""
    cluster = Cluster(new_broker({"group.coordinator.rebalance.protocols": "classic"}).bootstrap_servers)
    topic = cluster.create_topic()
    config = settings(cluster, topic, auto_offset_reset="latest")
    source = joined(config, Heard(), CONSUMER)
    # It has partitions before it has asked where they end.
    poll_until(source, lambda: cluster.committed(config.group_id, topic) == {0: 0})
    send(cluster, topic, 10)

    read(source, 10)
    source.rewind([Partition(topic, 0)])

    assert source.membership.protocol == "classic"
    assert [record.offset for record in read(source, 10)] == list(range(10))
    assert not source.commit_results()
    source.close()

"""The consumer and the producer on a real Kafka: what no fake can show."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.contract.test_sink import collect, stretches
from tests.contract.test_source import MEMBERSHIPS, Heard
from tests.fakes import Onlooker
from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import Cluster, Sent, fresh
from worker.core.failures import KafkaFatal
from worker.core.records import Message, Partition, Record
from worker.kafka.client.membership import Membership
from worker.kafka.cluster.topics import Topics
from worker.kafka.consumer.source import KafkaSource
from worker.kafka.producer.sink import KafkaSink
from worker.ports import Assignments
from worker.settings import KafkaSettings

PATIENCE = 60.0
LOGGER = logging.getLogger("librdkafka")
GZIP = rb"\x1f\x8b\x08"  # how packed data begins
CONSUMER = MEMBERSHIPS["kafka-consumer"]


def settings(cluster: Cluster, topic: str, **changes: object) -> KafkaSettings:
    """Settings of a worker that reads one topic; its response topic does not matter here."""
    values = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "request_topics": (topic,),
        "response_topic": "answers",
        "group_id": fresh("group"),
        "config": {"fetch.wait.max.ms": "10"},
    }
    return KafkaSettings.model_validate({**values, **changes})


def joined(
    kafka: KafkaSettings,
    assignments: Assignments,
    membership: Membership = CONSUMER,
    onlooker: Onlooker | None = None,
) -> KafkaSource:
    """A consumer that has begun to join its group."""
    if kafka.sasl_username is None:  # a client that logs in may not set it
        Cluster(kafka.bootstrap_servers).set_session(kafka.group_id)
    source = KafkaSource(kafka, membership, LOGGER, onlooker)
    source.subscribe(assignments)
    return source


def read(source: KafkaSource, count: int) -> list[Record]:
    """The next `count` records."""
    deadline = time.monotonic() + PATIENCE
    records: list[Record] = []
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records after {PATIENCE} s"
        records += source.poll(count - len(records), 0.05)
    return records


def poll_until(source: KafkaSource, is_so: Callable[[], bool]) -> None:
    """Serve the callbacks until `is_so`."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {PATIENCE} s"
        source.poll(1, 0.05)


class Counting(Heard):
    """Counts its assignments, empty ones too."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def assigned(self, partitions: Sequence[Partition]) -> None:
        super().assigned(partitions)
        self.times += 1


class CommitsLast(Heard):
    """Commits its settled records as the last act before its partitions move."""

    def __init__(self) -> None:
        super().__init__()
        self.source: KafkaSource | None = None
        self.settled: dict[Partition, int] = {}

    def revoked(self, partitions: Sequence[Partition]) -> None:
        super().revoked(partitions)
        assert self.source is not None
        self.source.commit({p: self.settled[p] for p in partitions if p in self.settled})


@pytest.mark.parametrize("protocol", MEMBERSHIPS)
def test_a_commit_sent_last_in_a_revoke_arrives_before_the_partitions_move(kafka: Cluster, protocol: str) -> None:
    """The new owner begins at exactly the offset that the old one committed inside the callback."""
    topic = kafka.create_topic("requests", partitions=4)
    kafka.produce(topic, [Sent(b"k", b"v", (), n % 4) for n in range(80)])
    config = settings(kafka, topic)
    old, new = CommitsLast(), Heard()
    old.source = joined(config, old, MEMBERSHIPS[protocol])
    read(old.source, 80)
    old.settled = {Partition(topic, number): 7 + number for number in range(4)}

    heir = joined(config, new, MEMBERSHIPS[protocol])
    first: dict[Partition, int] = {}
    deadline = time.monotonic() + PATIENCE
    while len(first) < 2:
        assert time.monotonic() < deadline, f"{old.events} {new.events} {first}"
        old.source.poll(100, 0.02)
        for record in heir.poll(100, 0.02):
            first.setdefault(record.partition, record.offset)

    assert first == {partition: old.settled[partition] for partition in new.held}
    heir.close()
    old.source.close()


@pytest.mark.parametrize("protocol", MEMBERSHIPS)
def test_a_replica_without_a_partition_is_told_that_it_is_in_the_group(kafka: Cluster, protocol: str) -> None:
    """A stand-by is ready: a rollout with more replicas than partitions does not wait for ever."""

    config = settings(kafka, kafka.create_topic())
    first = joined(config, holder := Counting(), MEMBERSHIPS[protocol])
    poll_until(first, lambda: bool(holder.held))
    second = joined(config, stand_by := Counting(), MEMBERSHIPS[protocol])

    deadline = time.monotonic() + PATIENCE
    while not stand_by.times:
        assert time.monotonic() < deadline, "the stand-by hears nothing"
        first.poll(1, 0.02)
        second.poll(1, 0.02)

    assert holder.held
    assert not stand_by.held
    second.close()
    first.close()


def test_a_replica_that_its_classic_group_has_not_let_in_is_told_nothing(kafka: Cluster) -> None:
    """It is not ready while it waits for a member that does not answer, though the coordinator does."""
    classic = MEMBERSHIPS["kafka-classic"]
    config = settings(kafka, kafka.create_topic("requests", partitions=2))
    first = joined(config, holder := Heard(), classic)
    poll_until(first, lambda: len(holder.held) == 2)
    second = joined(config, in_it := Counting(), classic)
    poll_until(second, lambda: in_it.times > 0)  # halfway: the first one has not given up a partition yet
    third = joined(config, newcomer := Counting(), classic)

    for _ in range(80):  # 4 s: several statistics
        second.poll(1, 0.03)
        third.poll(1, 0.02)

    assert not newcomer.times
    poll_until(first, lambda: len(holder.held) < 2)
    for source in (third, second, first):
        source.close()


@pytest.mark.parametrize("protocol", MEMBERSHIPS)
def test_a_replica_without_a_partition_leaves_its_group_when_it_ends(kafka: Cluster, protocol: str) -> None:
    """Nobody waits a session for a stand-by that has ended: it leaves the group at once."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    config = settings(kafka, kafka.create_topic())
    first = joined(config, holder := Heard(), MEMBERSHIPS[protocol])
    poll_until(first, lambda: bool(holder.held))
    second = joined(config, Heard(), MEMBERSHIPS[protocol])
    deadline = time.monotonic() + PATIENCE
    while members(admin, config.group_id) < 2:
        assert time.monotonic() < deadline, "the stand-by does not join"
        first.poll(1, 0.02)
        second.poll(1, 0.02)

    second.close()

    deadline = time.monotonic() + PATIENCE  # a session takes 45 s
    while members(admin, config.group_id) != 1:
        assert time.monotonic() < deadline, "the stand-by has ended, and its group waits for it"
        first.poll(1, 0.02)
    first.close()


def members(admin: AdminClient, group: str) -> int:
    """The group's number of members once it is stable; 0 before."""
    found = admin.describe_consumer_groups([group])[group].result()
    return len(found.members) if found.state is ConsumerGroupState.STABLE else 0


def test_what_fails_in_a_callback_comes_out_of_the_poll(kafka: Cluster) -> None:
    """The client does not swallow a failure while partitions move."""

    class Failing(Heard):
        def assigned(self, partitions: Sequence[Partition]) -> None:
            raise KafkaFatal("the sink is broken")

    source = joined(settings(kafka, kafka.create_topic()), Failing())

    with pytest.raises(KafkaFatal, match="the sink is broken"):
        read(source, 1)

    source.close()


def test_a_commit_that_the_group_refuses_is_a_result(kafka: Cluster) -> None:
    """A commit by a member that the group does not know is reported as failed; nothing is raised."""
    topic = kafka.create_topic()
    config = settings(kafka, topic)
    source = joined(config, heard := Heard(), MEMBERSHIPS["kafka-classic"])
    poll_until(source, lambda: bool(heard.held))
    source.close()
    source.commit({Partition(topic, 0): 1})

    (result,) = source.commit_results()
    assert not result.committed
    assert list(result.failed) == [Partition(topic, 0)]


def test_a_batch_damaged_on_disk_is_handed_on_as_unreadable(hurt_broker: JvmBroker) -> None:
    """Each of its records comes once, without a value and with the reason, and the next records are read."""
    cluster = Cluster(hurt_broker.bootstrap_servers)
    topic = cluster.create_topic("requests")
    cluster.produce(topic, [Sent(b"k", b"good")])
    packed = {"linger.ms": "60000", "compression.type": "gzip"}  # a flush ends the wait
    cluster.produce(topic, [Sent(b"k", b"packed together" * 20) for _ in range(3)], packed)
    cluster.produce(topic, [Sent(b"k", b"also good")])
    hurt_broker.stop()
    damage(hurt_broker, topic)
    hurt_broker.start()

    source = joined(settings(cluster, topic), Heard())
    records = read(source, 5)

    assert [(r.offset, r.value) for r in records] == [(0, b"good"), (1, None), (2, None), (3, None), (4, b"also good")]
    assert [r.unreadable is not None for r in records] == [False, True, True, True, False]
    source.close()


def damage(broker: JvmBroker, topic: str) -> None:
    """Flip bits in the middle of the log's compressed batches: one, or more if the producer was slow."""
    (segment,) = (broker.data / f"{topic}-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    packed = [found.start() for found in re.finditer(GZIP, content)]
    assert packed
    for at in packed:
        content[at + 20 : at + 28] = bytes(byte ^ 0xFF for byte in content[at + 20 : at + 28])
    segment.write_bytes(content)


def commit(config: KafkaSettings, *positions: TopicPartition) -> None:
    """Commit positions for this group with another consumer."""
    consumer = Consumer({"bootstrap.servers": config.bootstrap_servers, "group.id": config.group_id})
    consumer.commit(offsets=list(positions), asynchronous=False)
    consumer.close()


def new_sink(
    cluster: Cluster, topic: str, limit: int = 1_000_000, config: Mapping[str, str] | None = None
) -> KafkaSink:
    """A producer for one topic of one partition."""
    kafka = settings(cluster, "requests", response_topic=topic, config=config or {})
    return KafkaSink(kafka, Topics({topic: 1}, {topic: limit}, CONSUMER), LOGGER)


def test_one_refused_answer_among_many_is_fatal(kafka: Cluster) -> None:
    """Their stretch is not reported, although the broker took the others; earlier stretches are."""
    topic = kafka.create_topic(config={"max.message.bytes": "1000"})
    sink = new_sink(kafka, topic, config={"batch.num.messages": "1"})
    good, bad = stretches(2)

    sink.send([Message(topic, b"k", b"x", [], 0)] * 10, good)
    assert collect(sink, 1) == [good]
    sink.send([Message(topic, b"k", b"x" * (2000 if n == 5 else 1), [], 0) for n in range(10)], bad)

    with pytest.raises(KafkaFatal, match=f"refused a record for topic {topic}.*requests/0/1"):
        collect(sink, 1)
    sink.close(1.0)

"""Tools for tests on a running Kafka: topics with fresh names, records to send, and an independent reader.

Nothing here imports `worker`: a mistake there must not hide here.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar, cast

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec

from tests.kafka.broker import Login

T = TypeVar("T")
Report = Callable[[KafkaError | None, object], None]

TIMEOUT = 60.0  # nothing takes a tenth of it on an idle machine of two cores

# Seconds that a KIP-848 group waits for a silent member.
MORTAL = 3.0  # the test brokers' own: a dead member's partitions move soon
NEVER_DEAD = 45.0  # no member is given up because the machine, or the broker, stood still for a while

# Names are fresh per process and per call: no test meets topics and groups of another test or of an earlier run.
_RUN = f"{os.getpid():x}{int(time.time()) & 0xFFFFFF:x}"
_COUNTER = itertools.count()


class Sent(NamedTuple):
    """One record to send. `partition` -1 leaves the choice to the key."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int = -1


class Read(NamedTuple):
    """One record that came back."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def fresh(prefix: str) -> str:
    """A name that nobody uses yet."""
    return f"{prefix}-{_RUN}-{next(_COUNTER)}"


def patiently(ask: Callable[[], T]) -> T:
    """The broker's answer, asked for again while the broker is not ready."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Cluster:
    """A running Kafka, seen by a test. Owns an admin client. `login` is what every client needs to be let in."""

    def __init__(self, bootstrap_servers: str, login: Login | None = None) -> None:
        self.bootstrap_servers = bootstrap_servers
        # Critical messages alone: brokers are killed here, and each client would report it many times a second.
        self.login = {"bootstrap.servers": bootstrap_servers, "log_level": "2", **(login or {})}
        self.admin = AdminClient(dict(self.login))

    def wait_until_coordinating(self) -> None:
        """Wait until groups and transactions are served: a new broker makes their topics when it is first asked."""
        consumer = Consumer({**self.login, "group.id": fresh("first")})
        producer = Producer({**self.login, "transactional.id": fresh("first")})
        patiently(lambda: consumer.committed([TopicPartition("nothing", 0)], TIMEOUT))
        patiently(lambda: producer.init_transactions(TIMEOUT))
        consumer.close()

    def create_topic(
        self, prefix: str = "topic", *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Make a topic with a fresh name; return the name once every broker shows a leader for each partition."""
        name = fresh(prefix)
        self.make_topic(name, partitions, config)
        return name

    def make_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Make a topic; return once every broker shows a leader for each partition."""
        self.make_topics([NewTopic(name, num_partitions=partitions, config=dict(config or {}))])

    def make_topics(self, topics: Sequence[NewTopic]) -> None:
        """Make topics by one request; return once every broker shows a leader for each partition."""
        for made in self.admin.create_topics(list(topics)).values():
            made.result(TIMEOUT)
        deadline = time.monotonic() + TIMEOUT
        for topic in topics:
            while not self._is_visible(topic.topic, topic.num_partitions):
                assert time.monotonic() < deadline, f"{topic.topic} does not become visible"
                time.sleep(0.02)

    def _is_visible(self, topic: str, partitions: int) -> bool:
        found = self.admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
        return len(found) == partitions and all(p.leader >= 0 for p in found.values())

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and return when the broker confirms it."""
        self.admin.delete_topics([topic])[topic].result(TIMEOUT)

    def wait_until_gone(self, topic: str) -> None:
        """Wait until the broker no longer lists a deleted topic."""
        deadline = time.monotonic() + TIMEOUT
        while topic in self.admin.list_topics(timeout=TIMEOUT).topics:
            assert time.monotonic() < deadline, f"{topic} does not go"
            time.sleep(0.02)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Drop all records below an offset, as retention does."""
        at = TopicPartition(topic, partition, before)
        deadline = time.monotonic() + TIMEOUT
        deleted = self.admin.delete_records([at])[at]
        # A broker confirms a topic's new `cleanup.policy` a moment before its log follows it.
        while (error := deleted.exception(TIMEOUT)) and error.args[0].code() == KafkaError.POLICY_VIOLATION:
            assert time.monotonic() < deadline, error
            time.sleep(0.02)
            deleted = self.admin.delete_records([at])[at]
        deleted.result()

    def produce(self, topic: str, records: Iterable[Sent], config: Mapping[str, str] | None = None) -> int:
        """Send records and wait until all are acknowledged. Returns their number; fails the test if one is refused."""
        base = {**self.login, "linger.ms": 5, "partitioner": "murmur2_random"}
        producer = Producer({**base, **(config or {})})
        failures: list[str] = []
        acknowledged = 0

        def report(error: KafkaError | None, _message: object) -> None:
            nonlocal acknowledged
            acknowledged += error is None
            if error is not None:
                failures.append(str(error))

        count = 0
        for record in records:
            while not _try_produce(producer, topic, record, report):
                producer.poll(0.05)
            producer.poll(0)
            count += 1
        producer.flush(TIMEOUT)
        assert not failures, failures[:3]
        assert acknowledged == count, f"{acknowledged} of {count} records acknowledged"
        return count

    def read(self, topic: str, count: int, timeout: float = TIMEOUT) -> list[Read]:
        """At least `count` records of a topic from its beginning; fails the test when they do not come in time."""
        with Reader(self, topic) as reader:
            return reader.read_until(count, timeout)

    def read_all(self, topic: str) -> list[Read]:
        """Everything the topic holds now."""
        with Reader(self, topic) as reader:
            return reader.read_to_end()

    def partitions(self, topic: str) -> int:
        """The number of a topic's partitions."""
        return len(self.admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions)

    def end_offsets(self, topic: str, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> dict[int, int]:
        """The next record's offset in each partition; with READ_COMMITTED, where readers of committed data stop."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client declares no types for it
        spec = {TopicPartition(topic, number): latest for number in range(self.partitions(topic))}
        deadline = time.monotonic() + TIMEOUT
        while True:
            found = self.admin.list_offsets(spec, isolation_level=isolation, request_timeout=TIMEOUT)
            try:
                ends = {at.partition: future.result(TIMEOUT).offset for at, future in found.items()}
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:  # the topic was made just now
                    raise
                ends = {0: -1}
            if min(ends.values()) >= 0:  # -1001 stands for a leader that does not answer
                return ends
            assert time.monotonic() < deadline, "a leader does not answer"
            time.sleep(0.1)

    def has_open_transaction(self, topic: str) -> bool:
        """True if a reader of committed data has to wait for some records."""
        ends = self.end_offsets(topic)  # asked first: records below these that are still not committed later are open
        committed = self.end_offsets(topic, IsolationLevel.READ_COMMITTED)
        return any(end > committed[partition] for partition, end in ends.items())

    def limit_messages(self, topic: str, size: int) -> None:
        """Change the largest batch of records that a topic takes, bytes."""
        self.configure(topic, {"max.message.bytes": str(size)})

    def configure(self, topic: str, config: Mapping[str, str]) -> None:
        """Set some of a topic's settings; return once the broker itself has heard of them from the controller."""
        entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in config.items()]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(TIMEOUT)
        deadline = time.monotonic() + TIMEOUT
        while config.items() - {name: it.value for name, it in self._described(resource).items()}.items():
            assert time.monotonic() < deadline, f"{topic} does not get {config}"
            time.sleep(0.02)

    def _described(self, resource: ConfigResource) -> Mapping[str, ConfigEntry]:
        found: Mapping[str, ConfigEntry] = self.admin.describe_configs([resource])[resource].result(TIMEOUT)
        return found

    def visitor(self, group: str, protocol: str, topics: Sequence[str]) -> Consumer:
        """A plain consumer that joins the group and commits nothing."""
        # A member that leaves in the middle of a classic rebalance is noticed only after its session.
        classic: Login = {
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 3000,
            "heartbeat.interval.ms": 500,
        }
        joining: Login = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        own: Login = {"enable.auto.commit": False, **(classic if protocol == "classic" else {})}
        consumer = Consumer({**self.login, **joining, **own})
        consumer.subscribe(list(topics))
        return consumer

    def set_session(self, group: str, seconds: float = NEVER_DEAD) -> None:
        """Set how long a KIP-848 group waits for a silent member."""
        entry = ConfigEntry("consumer.session.timeout.ms", str(int(seconds * 1000)))
        entry.incremental_operation = AlterConfigOpType.SET
        resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(TIMEOUT)

    def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Set a next offset of a group that has no members."""
        at = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
        for future in self.admin.alter_consumer_group_offsets([at]).values():
            future.result(TIMEOUT)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The group's committed next offsets, by partition; partitions without one are left out."""
        # Not by the admin client, which ends the process (SIGSEGV, librdkafka 2.16) when the coordinator refuses.
        consumer = Consumer({**self.login, "group.id": group, "isolation.level": "read_uncommitted"})
        try:
            places = [TopicPartition(topic, number) for number in range(self.partitions(topic))]
            found = patiently(lambda: consumer.committed(places, TIMEOUT))
        finally:
            consumer.close()
        return {at.partition: at.offset for at in found if at.offset >= 0}


class Reader:
    """Reads a topic from its beginning without a group; keeps what it has read in `records`."""

    def __init__(
        self, cluster: Cluster, topic: str, isolation: str = "read_committed", *, partitions: int | None = None
    ) -> None:
        self.records: list[Read] = []
        self._ends = cluster.end_offsets
        self._topic = topic
        self._next: dict[int, int] = {}  # where each partition goes on, behind the markers of transactions
        self._consumer = Consumer(
            {
                **cluster.login,
                "group.id": fresh("reader"),
                "enable.auto.commit": False,
                # A partition may end with a marker, which is no message: this event reports the end.
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 500,
            }
        )
        # Partitions are assigned by number: the metadata of a fresh topic may show none.
        count = cluster.partitions(topic) if partitions is None else partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])

    def read(self, timeout: float = 0.0) -> None:
        """Read the records that are there, waiting at most `timeout` seconds for the first."""
        first = self._consumer.poll(timeout)
        for message in [] if first is None else [first, *self._consumer.consume(1000, 0.0)]:
            self._take_in(message)

    def _take_in(self, message: Message) -> None:
        partition, offset, error = message.partition(), message.offset(), message.error()
        assert partition is not None
        assert offset is not None
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._next[partition] = offset
            return
        if error is not None:
            raise KafkaException(error)
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        self.records.append(Read(partition, offset, message.key(), message.value(), headers))
        self._next[partition] = offset + 1

    def read_until(self, count: int, timeout: float = TIMEOUT) -> list[Read]:
        """All records so far, once there are `count`; fails the test when they do not come in time."""
        deadline = time.monotonic() + timeout
        while len(self.records) < count:
            assert time.monotonic() < deadline, f"{len(self.records)} of {count} records after {timeout} s"
            self.read(0.1)
        return self.records

    def read_to_end(self, timeout: float = TIMEOUT) -> list[Read]:
        """All records up to the end that the topic has now."""
        ends = self._ends(self._topic)
        deadline = time.monotonic() + timeout
        while not self.has_reached(ends):
            assert time.monotonic() < deadline, f"{self._topic}: not read to its end after {timeout} s"
            self.read(0.1)
        return self.records

    def has_reached(self, ends: Mapping[int, int]) -> bool:
        """True if each record below these offsets is read, or belongs to an aborted transaction."""
        return all(self._next.get(partition, 0) >= end for partition, end in ends.items())

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _try_produce(producer: Producer, topic: str, record: Sent, report: Report) -> bool:
    try:
        producer.produce(
            topic, record.value, record.key, record.partition, on_delivery=report, headers=list(record.headers)
        )
    except BufferError:
        return False
    return True

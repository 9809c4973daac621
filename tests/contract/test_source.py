"""Every source's promises, which the fake, the mock cluster and a real Kafka with both group protocols keep."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import pytest

from tests.fakes import Broker, Clock, FakeSource
from tests.kafka.cluster import Cluster, Sent, fresh
from worker.core.records import CommitResult, Partition, Record
from worker.kafka.client.membership import Membership
from worker.kafka.consumer.source import KafkaSource
from worker.ports import Assignments, GroupSource
from worker.settings import KafkaSettings
from worker.tools.kafka.embedded import EmbeddedBroker

PATIENCE = 60.0
MEMBERSHIPS = {
    "kafka-consumer": Membership("consumer", "test"),
    "kafka-classic": Membership("classic", "test"),
}
LOGGER = logging.getLogger("librdkafka")


class Heard:
    """A source's callbacks about its partitions, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Partition]] = []
        self.held: set[Partition] = set()

    def assigned(self, partitions: Sequence[Partition]) -> None:
        self.events += [("assigned", p) for p in partitions]
        self.held |= set(partitions)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        self.events += [("revoked", p) for p in partitions]
        self.held -= set(partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        self.events += [("lost", p) for p in partitions]
        self.held -= set(partitions)

    def is_in_doubt(self, partition: Partition) -> bool:  # nothing was committed
        return False


class Stage(Protocol):
    """A topic of four partitions, and sources of one group that read it, one at a time."""

    @property
    def partitions(self) -> Sequence[Partition]: ...

    def send(self, partition: Partition, count: int) -> None:
        """Append records with key `k`, a header `n` and the values 0, 1, 2..."""

    def join(self, assignments: Assignments) -> GroupSource: ...


class FakeStage:
    """The fake keeps these promises, or the tests of the loop prove nothing."""

    partitions = tuple(Partition("requests", number) for number in range(4))

    def __init__(self) -> None:
        self._broker = Broker()
        self._clock = Clock()

    def send(self, partition: Partition, count: int) -> None:
        for n in range(count):
            offset = self._broker.end(partition)
            self._broker.append(Record(partition, offset, b"k", b"%d" % n, [("n", b"%d" % n)], 0))

    def join(self, assignments: Assignments) -> GroupSource:
        source = FakeSource(self._broker, self._clock)
        source.subscribe(assignments)
        source.assign(*self.partitions)
        return source


class KafkaStage:
    """A real consumer; `membership` chooses its group protocol."""

    def __init__(self, cluster: Cluster, topic: str, membership: Membership) -> None:
        self._cluster = cluster
        self._membership = membership
        self._kafka = KafkaSettings(
            bootstrap_servers=cluster.bootstrap_servers,
            request_topics=(topic,),
            response_topic="answers",
            group_id=fresh("group"),
            config={"fetch.wait.max.ms": "10"},
        )
        self.group = self._kafka.group_id
        self.partitions = tuple(Partition(topic, number) for number in range(4))

    def send(self, partition: Partition, count: int) -> None:
        self._cluster.produce(
            partition.topic, [Sent(b"k", b"%d" % n, [("n", b"%d" % n)], partition.number) for n in range(count)]
        )

    def join(self, assignments: Assignments) -> GroupSource:
        source = KafkaSource(self._kafka, self._membership, LOGGER)
        source.subscribe(assignments)
        return source


@pytest.fixture(params=["fake", "mock", "kafka-consumer", "kafka-classic"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """One stage for each implementation."""
    if request.param == "fake":
        yield FakeStage()
    elif request.param == "mock":
        with EmbeddedBroker() as broker:
            topic = fresh("requests")
            broker.create_topic(topic)
            yield KafkaStage(Cluster(broker.bootstrap_servers), topic, Membership("consumer", "mock"))
    else:
        cluster: Cluster = request.getfixturevalue("kafka")
        topic = cluster.create_topic("requests", partitions=4)
        kafka_stage = KafkaStage(cluster, topic, MEMBERSHIPS[request.param])
        cluster.set_session(kafka_stage.group)
        yield kafka_stage


class Member:
    """A source with its callbacks and its records."""

    def __init__(self, stage: Stage) -> None:
        self.heard = Heard()
        self.records: list[Record] = []
        self.results: list[CommitResult] = []
        self.source = stage.join(self.heard)

    def poll(self, most: int = 100, timeout: float = 0.05) -> Sequence[Record]:
        records = self.source.poll(most, timeout)
        self.records += records
        self.results += self.source.commit_results()
        return records

    def poll_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < deadline, f"{self.heard.events} {len(self.records)} records {self.results}"
            self.poll()

    def poll_until_all_held(self, stage: Stage) -> None:
        self.poll_until(lambda: self.heard.held == set(stage.partitions))

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self.source.commit(offsets)
        self.poll_until(lambda: bool(self.results))

    def read(self, partition: Partition, count: int) -> list[int]:
        """The offsets of the next `count` records; no other partition has any left."""
        self.records.clear()
        self.poll_until(lambda: len(self.records) >= count)
        assert {record.partition for record in self.records} == {partition}
        return [record.offset for record in self.records]


def test_records_come_in_order_with_all_they_hold(stage: Stage) -> None:
    """Each partition's records arrive in order, each with offset, key, value and headers."""
    for partition in stage.partitions[:2]:
        stage.send(partition, 50)

    member = Member(stage)
    member.poll_until(lambda: len(member.records) == 100)

    for partition in stage.partitions[:2]:
        mine = [r for r in member.records if r.partition == partition]
        assert [r.offset for r in mine] == list(range(50))
        assert [(r.key, r.value) for r in mine] == [(b"k", b"%d" % n) for n in range(50)]
        assert [list(r.headers) for r in mine] == [[("n", b"%d" % n)] for n in range(50)]
        assert all(r.timestamp_ms is not None and r.unreadable is None for r in mine)
    member.source.close()


def test_no_poll_brings_more_than_it_was_asked_for(stage: Stage) -> None:
    """The bound of records is exact."""
    stage.send(stage.partitions[0], 40)
    member = Member(stage)

    sizes = []
    while len(member.records) < 40:
        sizes.append(len(member.poll(most=7)))

    assert max(sizes) <= 7
    member.source.close()


def test_partitions_are_announced_before_their_records(stage: Stage) -> None:
    """No record comes from a partition that the worker does not know."""
    for partition in stage.partitions:
        stage.send(partition, 5)
    member = Member(stage)

    while len(member.records) < 20:
        for record in member.poll():
            assert record.partition in member.heard.held

    assert sorted(member.heard.events) == [("assigned", p) for p in sorted(stage.partitions)]
    member.source.close()


def test_the_next_owner_begins_where_the_commit_ended(stage: Stage) -> None:
    """A later poll brings a commit's result, and the next owner's first record is at its offset."""
    first, second = stage.partitions[:2]
    stage.send(first, 10)
    stage.send(second, 10)
    member = Member(stage)
    member.poll_until(lambda: len(member.records) == 20)

    member.commit({first: 3, second: 10})
    member.source.close()

    assert member.results == [CommitResult({first: 3, second: 10}, {})]
    heir = Member(stage)
    heir.poll_until(lambda: len(heir.records) >= 7)
    assert [(r.partition, r.offset) for r in heir.records] == [(first, n) for n in range(3, 10)]
    heir.source.close()


def test_a_paused_source_brings_nothing_until_it_is_resumed(stage: Stage) -> None:
    """This includes partitions that are assigned while it is paused."""
    member = Member(stage)

    member.source.pause()
    member.poll_until_all_held(stage)
    for partition in stage.partitions:
        stage.send(partition, 5)
    for _ in range(10):
        member.poll()

    assert not member.records
    member.source.resume()
    member.poll_until(lambda: len(member.records) == 20)
    member.source.close()


def test_closing_revokes_what_is_held(stage: Stage) -> None:
    """The callback that settles and commits runs for the last time."""
    member = Member(stage)
    member.poll_until_all_held(stage)

    member.source.close()

    assert not member.heard.held
    assert sorted(member.heard.events)[-4:] == [("revoked", p) for p in sorted(stage.partitions)]


def test_a_rewound_partition_is_read_again_from_the_commit(stage: Stage) -> None:
    """Nothing is left out or comes twice, and no record that was on its way comes in between."""
    first, second = stage.partitions[:2]
    stage.send(first, 500)
    stage.send(second, 500)
    member = Member(stage)
    member.poll_until(lambda: len([r for r in member.records if r.partition == first]) >= 50)
    member.commit({first: 20})

    member.source.rewind([first])
    before = len(member.records)
    member.poll_until(lambda: len(member.records) - before + before_of(member, second, before) >= 980)

    assert [r.offset for r in member.records[before:] if r.partition == first] == list(range(20, 500))
    assert [r.offset for r in member.records if r.partition == second] == list(range(500))
    member.source.close()


def before_of(member: Member, partition: Partition, before: int) -> int:
    """The number of this partition's records among the first `before`."""
    return len([r for r in member.records[:before] if r.partition == partition])


def test_without_a_commit_it_is_read_again_from_where_this_assignment_began(stage: Stage) -> None:
    """This works repeatedly, whatever a reset policy says."""
    partition = stage.partitions[0]
    stage.send(partition, 30)
    member = Member(stage)

    for _ in range(3):
        assert member.read(partition, 30) == list(range(30))
        member.source.rewind([partition])

    assert member.read(partition, 30) == list(range(30))
    member.source.close()


def test_a_partition_that_has_left_cannot_be_rewound(stage: Stage) -> None:
    """The caller may not have heard of it yet."""
    member = Member(stage)
    member.poll_until_all_held(stage)

    member.source.rewind([Partition(stage.partitions[0].topic, 99)])
    stage.send(stage.partitions[0], 5)

    assert member.read(stage.partitions[0], 5) == list(range(5))
    member.source.close()


def test_a_held_partition_goes_on_with_its_first_record_that_was_held(stage: Stage) -> None:
    """Meanwhile it brings nothing, is nowhere, and holds up no other partition."""
    first, second = stage.partitions[:2]
    stage.send(first, 30)
    member = Member(stage)
    assert member.read(first, 30) == list(range(30))

    member.source.hold(first, 20)
    stage.send(first, 5)
    stage.send(second, 10)
    assert member.read(second, 10) == list(range(10))
    assert first not in member.source.positions()
    member.source.pause()
    member.source.resume()
    assert not member.poll(timeout=0.5)
    member.source.release(first)

    assert member.read(first, 15) == list(range(20, 35))
    member.source.close()


def test_a_rewind_ends_a_hold(stage: Stage) -> None:
    """The partition is read again from the commit, though nobody released it."""
    partition = stage.partitions[0]
    stage.send(partition, 30)
    member = Member(stage)
    assert member.read(partition, 30) == list(range(30))
    member.commit({partition: 10})

    member.source.hold(partition, 20)
    member.source.rewind([partition])

    assert member.read(partition, 20) == list(range(10, 30))
    member.source.close()


def test_a_partition_that_was_held_comes_to_its_next_owner_from_the_commit(stage: Stage) -> None:
    """A hold ends with the partition's leaving."""
    partition = stage.partitions[0]
    stage.send(partition, 30)
    member = Member(stage)
    assert member.read(partition, 30) == list(range(30))
    member.commit({partition: 20})
    member.source.hold(partition, 20)
    member.source.close()

    successor = Member(stage)

    assert successor.read(partition, 10) == list(range(20, 30))
    successor.source.close()

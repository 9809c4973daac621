"""A source with a client that follows a script."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ClusterMetadata, PartitionMetadata, TopicMetadata

from tests.fakes import Clock
from tests.unit.kafka.client.test_config import settings
from worker.core.records import Partition
from worker.kafka.client.membership import Membership
from worker.kafka.client.statistics import ClientWatcher
from worker.kafka.consumer import reports, source, spoiled_batches
from worker.kafka.consumer.source import KafkaSource
from worker.kafka.offsets import standings

P, Q = Partition("r", 0), Partition("r", 1)
DAMAGED = KafkaError(KafkaError._BAD_COMPRESSION, "damaged")
AWAY = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Incoming(NamedTuple):
    """A message of the client: every field is a method."""

    at: Partition
    number: int
    failure: KafkaError | None = None
    content: bytes | None = b"v"
    looks: list[str] | None = None  # looks at headers, one of which has a name that is no UTF-8

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.number

    def offset(self) -> int:
        return self.number

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes | None:
        return self.content

    def headers(self) -> None:
        if self.looks is not None:
            assert not self.looks, "the second look ends the process"
            self.looks.append("the first")
            raise SystemError("<method 'headers' of 'cimpl.Message' objects> returned a result with an exception set")

    def timestamp(self) -> tuple[int, int]:
        return (0, -1)

    def error(self) -> KafkaError | None:
        return self.failure


class ScriptedClient:
    """Each `consume` and `poll` does the next thing in `script` and returns what that gives."""

    def __init__(self, config: dict[str, Any], logger: Any) -> None:
        self.config = config
        self.logger = logger
        self.script: deque[Callable[[], list[Incoming]]] = deque()
        self.commits: list[list[TopicPartition]] = []
        self.seeks: list[tuple[int, int]] = []
        self.stopped: set[int] = set()
        self.group: dict[Partition, tuple[int, str]] = {}  # committed offsets and their metadata
        self.asked: list[list[int]] = []
        self.patience: list[float] = []  # seconds, for each question
        self.ends_asked: list[list[int]] = []
        self.begins_asked: list[list[int]] = []
        self.first, self.end = 0, 100
        self.is_away = False  # the broker
        self.away_for = 0  # so many questions for the group's offsets fail
        self.open: set[int] = set()  # partitions with offsets in an open transaction
        self.is_closed = False
        self.leaderless: set[int] = set()  # partitions; in a question with one of them, no end is known
        self.is_stuck = False  # the fetcher: it takes no seek
        self.is_refusing = False  # the client: it takes no assignment
        self.begun: list[tuple[int, int]] = []  # where the client was told to begin
        self.position_of: dict[int, int] = {}  # how far the client has come
        self.positions_asked: list[list[int]] = []
        self.hears_at_once = True  # True: the next poll reports a commit; else the test does
        self.heard: list[list[TopicPartition]] = []
        self.held: set[Partition] = set()
        self.unreadable: list[tuple[int, int]] = []  # batches, from their first offset to their last
        self.spoiled: tuple[int, int] | None = None  # offsets that cannot be parsed, first and last
        self.unparsed = 0
        self.looks: list[int] = []
        self.callbacks: dict[str, Callable[..., None]] = {}
        self.deleted: set[str] = set()  # topics
        self.left = 0  # times

    def subscribe(self, _topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.callbacks = callbacks

    def unsubscribe(self) -> None:
        self.left += 1

    def consume(self, _count: int, _timeout: float) -> list[Incoming]:
        while self.heard:
            self.config["on_commit"](None, self.heard.pop(0))
        return self.script.popleft()() if self.script else []

    def poll(self, _timeout: float) -> Incoming | None:
        messages = self.consume(1, 0)
        return messages[0] if messages else None

    def position(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        if self.is_refusing:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.positions_asked.append([at.partition for at in positions])
        return [TopicPartition(at.topic, at.partition, self.position_of.get(at.partition, -1001)) for at in positions]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:  # noqa: FBT001  # the client's own
        assert asynchronous
        self.commits.append(offsets)
        if self.hears_at_once:
            self.heard.append(offsets)

    def seek(self, at: TopicPartition) -> None:
        if self.is_stuck:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.seeks.append((at.partition, at.offset))

    def incremental_assign(self, positions: list[TopicPartition]) -> None:
        if self.is_refusing:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.begun += [(at.partition, at.offset) for at in positions]

    def committed(self, positions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self.is_closed:
            raise RuntimeError("Consumer closed")
        self.asked.append([at.partition for at in positions])
        self.patience.append(timeout)
        self.away_for -= 1
        if self.is_away or self.away_for >= 0 or any(at.partition in self.open for at in positions):
            raise AWAY
        partitions = [Partition(at.topic, at.partition) for at in positions]
        return [TopicPartition(*p, *self.group.get(p, (-1001,))) for p in partitions]

    def offsets_for_times(self, positions: list[TopicPartition], _timeout: float) -> list[Any]:
        if all(at.offset == OFFSET_BEGINNING for at in positions):
            return self._begins(positions)
        assert all(at.offset == OFFSET_END for at in positions)
        self.ends_asked.append([at.partition for at in positions])
        if self.is_away or any(at.partition in self.leaderless for at in positions):
            raise AWAY
        return [TopicPartition(at.topic, at.partition, self.end) for at in positions]

    def _begins(self, positions: list[TopicPartition]) -> list[Any]:
        self.begins_asked.append([at.partition for at in positions])
        if self.is_away:
            raise AWAY
        return [
            SimpleNamespace(
                topic=at.topic,
                partition=at.partition,
                offset=self.first,
                error=AWAY.args[0] if at.partition in self.leaderless else None,
            )
            for at in positions
        ]

    def get_watermark_offsets(self, _at: TopicPartition, cached: bool) -> tuple[int, int]:  # noqa: FBT001  # the client's own
        assert cached
        return self.first, self.end

    def list_topics(self, name: str, timeout: float) -> ClusterMetadata:
        assert timeout > 0
        metadata = ClusterMetadata()
        topic = metadata.topics[name] = TopicMetadata()
        topic.topic = name
        for partition in self.held:
            at = topic.partitions[partition.number] = PartitionMetadata()
            at.id, at.leader = partition.number, -1 if partition.number in self.leaderless else 1
        return metadata

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*partition) for partition in self.held]

    def pause(self, positions: list[TopicPartition]) -> None:
        self.stopped.update(at.partition for at in positions)

    def resume(self, positions: list[TopicPartition]) -> None:
        self.stopped.difference_update(at.partition for at in positions)

    def close(self) -> None:
        """Only note that it is closed."""
        self.is_closed = True


class FurtherClient:
    """Another client of the source, which asks the first one's group or cluster, or looks at its log."""

    def __init__(self, first: ScriptedClient, config: dict[str, Any]) -> None:
        self._config = config
        self._first = first
        self._at: TopicPartition | None = None

    def list_topics(self, topic: str = "", timeout: float = 0.0) -> ClusterMetadata:
        metadata = ClusterMetadata()
        found = metadata.topics[topic] = TopicMetadata()
        found.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) if topic in self._first.deleted else None
        found.partitions = {} if found.error else {0: PartitionMetadata(), 1: PartitionMetadata()}
        return metadata

    def get_watermark_offsets(self, _at: TopicPartition, _timeout: float) -> tuple[int, int]:
        return self._first.first, self._first.end

    def assign(self, positions: list[TopicPartition]) -> None:
        (self._at,) = positions
        self._first.looks.append(self._at.offset)

    def poll(self, _timeout: float) -> Incoming | None:
        """Return the message at the assigned offset, or None without one."""
        if self._at is None:
            return None
        at, partition = self._at.offset, Partition(self._at.topic, self._at.partition)
        if self._first.spoiled is not None and self._first.spoiled[0] <= at <= self._first.spoiled[1]:
            self._first.unparsed += 1
            self._config["stats_cb"](statistics(partition, at, unparsed=self._first.unparsed))
            return None
        found = next((first for first, last in self._first.unreadable if first <= at <= last), None)
        return Incoming(partition, at) if found is None else Incoming(partition, found, DAMAGED)

    def close(self) -> None: ...


class Beside:
    """An executor that works at once, or when `background` chooses."""

    def __init__(self, background: Callable[[Callable[[], None]], None] | None) -> None:
        self._background = background or (lambda now: now())

    def submit(self, work: Callable[..., Any], *arguments: object) -> Future[Any]:
        found: Future[Any] = Future()
        self._background(lambda: found.set_result(work(*arguments)))
        return found

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        assert cancel_futures
        assert not wait


class Quiet:
    """`failure` is raised when partitions go."""

    failure: Exception | None = None

    def __init__(self) -> None:
        self.gone: list[Partition] = []
        self.doubted: set[Partition] = set()

    def assigned(self, partitions: Sequence[Partition]) -> None: ...

    def revoked(self, partitions: Sequence[Partition]) -> None:
        self.gone += partitions
        if self.failure is not None:
            raise self.failure

    def lost(self, partitions: Sequence[Partition]) -> None: ...

    def is_in_doubt(self, partition: Partition) -> bool:
        return partition in self.doubted


def statistics(partition: Partition, position: int, *, stable: int = 100, answers: int = 1, unparsed: int = 0) -> str:
    """The statistics of a client that stands at a position, in a log of 100 offsets."""
    read = {"committed_offset": -1001, "app_offset": position, "next_offset": position, "fetchq_cnt": 0, "broker": 1}
    found = {"fetch_state": "active", "ls_offset": stable, "hi_offset": 100, **read}
    broker = {"nodeid": 1, "state": "UP", "source": "learned", "rx": answers, "rxpartial": unparsed}
    topics = {partition.topic: {"partitions": {str(partition.number): found}}}
    return json.dumps({"topics": topics, "brokers": {"b:9092/1": broker}})


class World(NamedTuple):
    source: KafkaSource
    client: ScriptedClient
    assignments: Quiet
    clock: Clock

    def assign(self, *partitions: Partition) -> None:
        self.client.held |= set(partitions)
        self.client.callbacks["on_assign"](self.client, [TopicPartition(*p) for p in partitions])

    def revoke(self, *partitions: Partition) -> None:
        self.client.held -= set(partitions)
        self.client.callbacks["on_revoke"](self.client, [TopicPartition(*p) for p in partitions])

    def lose(self, *partitions: Partition) -> None:
        self.client.held -= set(partitions)
        self.client.callbacks["on_lost"](self.client, [TopicPartition(*p) for p in partitions])

    def commit_heard(self, *positions: object, error: KafkaError | None = None) -> None:
        self.client.config["on_commit"](error, list(positions))

    def polled(self, most: int = 10, timeout: float = 0.1) -> list[tuple[Partition, int]]:
        return [(record.partition, record.offset) for record in self.source.poll(most, timeout)]

    def joins(self, *partitions: Partition) -> None:
        """Assign the partitions in a poll."""

        def fetch() -> list[Incoming]:
            self.assign(*partitions)
            return []

        self.client.script.append(fetch)
        self.polled()

    def fails(self, first: int, partition: Partition = P) -> list[tuple[Partition, int]]:
        """Report that the batch from `first` on cannot be read. Returns the records of that poll."""
        self.client.script.append(lambda: [Incoming(partition, first, DAMAGED)])
        return self.polled()

    def stands(self, position: int, seconds: int, partition: Partition = P, stable: int = 100) -> None:
        """Let the client stand at a position for so long, while its broker answers."""
        for second in range(seconds):
            self.clock.now += 1.0
            self.client.config["stats_cb"](statistics(partition, position, stable=stable, answers=second))

    def will_revoke(self, *partitions: Partition) -> None:
        """Revoke the partitions in the next poll."""

        def fetch() -> list[Incoming]:
            self.revoke(*partitions)
            return []

        self.client.script.append(fetch)

    def brings(self, *records: tuple[Partition, int]) -> list[tuple[Partition, int]]:
        """Let the client bring these records. Returns what the source hands out."""
        self.client.script.append(lambda: [Incoming(*record) for record in records])
        return self.polled_twice()

    def polled_twice(self) -> list[tuple[Partition, int]]:
        """Poll twice: a fetch, and what had to wait for an answer."""
        return self.polled() + self.polled()

    @property
    def commits(self) -> list[list[tuple[int, int, str | None]]]:
        """The commits: partition, offset and note."""
        return [[(at.partition, at.offset, at.metadata) for at in commit] for commit in self.client.commits]

    def results_heard(self, error: KafkaError | None = None) -> None:
        """Let the results of all commits under way arrive."""
        for commit in self.client.commits:
            self.commit_heard(*commit, error=error)
        self.client.commits.clear()


def new_world(
    monkeypatch: pytest.MonkeyPatch,
    watcher: ClientWatcher | None = None,
    background: Callable[[Callable[[], None]], None] | None = None,
    protocol: Literal["classic", "consumer"] = "consumer",
    **changes: Any,
) -> World:
    """A source that has joined its group and holds nothing yet. `background` runs work of other threads: at once."""
    clients: list[ScriptedClient] = []

    def make(config: dict[str, Any], logger: object = None) -> ScriptedClient | FurtherClient:
        if clients:
            return FurtherClient(clients[0], config)
        clients.append(ScriptedClient(config, logger))
        return clients[-1]

    monkeypatch.setattr(source, "Consumer", make)
    clock = Clock()
    monkeypatch.setattr(reports, "in_background", lambda work, _: (background or (lambda now: now()))(work))
    monkeypatch.setattr(spoiled_batches, "ThreadPoolExecutor", lambda *_: Beside(background))
    monkeypatch.setattr(standings, "time", SimpleNamespace(sleep=clock.wait, monotonic=clock))
    logger = logging.getLogger("librdkafka")
    membership = Membership(protocol, "test")
    made = KafkaSource(settings(**changes), membership, logger, watcher, clock)
    made.subscribe(assignments := Quiet())
    return World(made, clients[0], assignments, clock)

"""A reader begins despite a newly elected leader, and fails on lasting problems."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.unit.kafka.client.test_config import settings
from worker.core.failures import KafkaFatal
from worker.core.records import Partition, Record
from worker.kafka import reader
from worker.kafka.reader import Reader, newest

ELECTED = KafkaError(KafkaError.UNKNOWN_LEADER_EPOCH)
NOT_NAMED = KafkaError(KafkaError._UNKNOWN_PARTITION)
CLOSED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Client:
    """Answers with `refusals` while there are any, raised or for the one partition; then with 7."""

    def __init__(self, refusals: Iterable[KafkaError | KafkaException]) -> None:
        self.refusals = deque(refusals)
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[Any]:
        refusal = self.refusals.popleft() if self.refusals else None
        if isinstance(refusal, KafkaException):
            raise refusal
        return [SimpleNamespace(partition=at.partition, offset=7, error=refusal) for at in asked]

    def assign(self, positions: list[TopicPartition]) -> None: ...

    def consume(self, most: int, timeout: float) -> list[Any]:
        """Return the one partition's errors in the place of records."""
        told = [SimpleNamespace(partition=lambda: 0, error=lambda error=error: error) for error in self.refusals]
        self.refusals.clear()
        return told


def made(monkeypatch: pytest.MonkeyPatch, *refusals: KafkaError | KafkaException, partitions: int = 1) -> Reader:
    topics = {"answers": SimpleNamespace(partitions=dict.fromkeys(range(partitions)))}
    client = Client(refusals)
    monkeypatch.setattr(reader, "reach", lambda *_: SimpleNamespace(cluster=SimpleNamespace(topics=topics)))
    monkeypatch.setattr(reader, "open_client", lambda *_: client)
    monkeypatch.setattr(reader, "time", client)
    found = Reader(settings(), "answers")
    found.start_at(found.ends)
    return found


@pytest.mark.parametrize(
    "refusal", [ELECTED, KafkaException(ELECTED), NOT_NAMED], ids=["a partition", "all", "unnamed"]
)
def test_a_leader_that_was_elected_just_now_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, refusal: KafkaError | KafkaException
) -> None:
    """It refuses until it has heard of its own election, or a broker names no partition for a moment."""
    found = made(monkeypatch, refusal, refusal)

    assert found.ends == {Partition("answers", 0): 7}


@pytest.mark.parametrize("refusal", [KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), CLOSED])
def test_a_topic_that_is_gone_or_closed_ends_the_reading(monkeypatch: pytest.MonkeyPatch, refusal: KafkaError) -> None:
    """No record would ever come there."""
    found = made(monkeypatch)
    cast("Client", found._consumer).refusals.append(refusal)

    with pytest.raises(KafkaFatal, match="answers cannot be read"):
        found.read(0.0)


class Topic:
    """Stands for a reader: two partitions with a record a second, of which every fifth has no value."""

    def __init__(self, records: int) -> None:
        self.beginnings = {Partition("payments", number): 0 for number in range(2)}
        self.ends = dict.fromkeys(self.beginnings, records)
        self.starts: Mapping[Partition, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def up_to_ends(self, starts: Mapping[Partition, int]) -> Iterator[Record]:
        self.starts = starts
        for at, start in starts.items():
            for offset in range(start, self.ends[at]):
                value = None if offset % 5 == 0 else b"{}"
                yield Record(at, offset, None, value, (), offset * 1000 + at.number)


@pytest.mark.parametrize("count", [10_000, 4])
def test_the_newest_records_of_all_partitions_are_read(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Oldest first, none of them without a value; not all of a long topic is read for them."""
    topic = Topic(count)
    monkeypatch.setattr(reader, "Reader", lambda *_: topic)

    found = newest(settings(), "payments", 5)

    wanted = [(number, offset) for offset in range(count) for number in range(2) if offset % 5][-5:]
    assert [(record.partition.number, record.offset) for record in found] == wanted
    assert set(topic.starts.values()) == {max(0, count - 120)}

"""Who writes what to the group's store: each row of the table in `group_offsets.py`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.fakes import Clock
from worker.core.records import CommitResult, Partition
from worker.kafka.client.errors import ClientLog
from worker.kafka.offsets.group_offsets import RETRY_AFTER, KafkaOffsets

P = Partition("r", 0)
REFUSED = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)


class Store:
    """A consumer that only commits."""

    def __init__(self) -> None:
        self.commits: list[TopicPartition] = []
        self.is_closed = False

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        if self.is_closed:
            raise RuntimeError("Consumer closed")
        self.commits += offsets

    @property
    def said(self) -> list[tuple[int, int, str | None]]:
        """The commits: partition, offset and note."""
        return [(at.partition, at.offset, at.metadata) for at in self.commits]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def offsets(store: Store, clock: Clock) -> KafkaOffsets:
    consumer = cast("Consumer", store)
    return KafkaOffsets(consumer, ClientLog(logging.getLogger("kafka")), clock)


def heard(offsets: KafkaOffsets, store: Store, error: KafkaError | None = None) -> Sequence[KafkaError]:
    """Let the result of the last commit arrive."""
    return offsets.heard(error, store.commits[-1:])


def test_the_delivery_hears_of_no_start(offsets: KafkaOffsets, store: Store) -> None:
    """A refusal is returned all the same, for it may be final."""
    offsets.note_start(P, 100)

    assert heard(offsets, store, REFUSED) == [REFUSED]
    assert store.said == [(0, 100, "new")]
    assert offsets.commit_results() == []


def test_a_commit_of_the_delivery_has_no_note(offsets: KafkaOffsets, store: Store) -> None:
    """So the first answer that is committed ends that a group is new."""
    offsets.commit({P: 7})
    heard(offsets, store)

    assert store.said == [(0, 7, None)]
    assert offsets.commit_results() == [CommitResult({P: 7}, {})]


def test_a_start_that_was_never_sent_is_sent_again(offsets: KafkaOffsets, store: Store, clock: Clock) -> None:
    """The client refuses it in the middle of a rebalance, or when it is closed."""
    store.is_closed = True
    assert not offsets.note_start(P, 100)
    store.is_closed = False
    assert not offsets.note_start(P, 100)
    assert not store.commits

    clock.now += RETRY_AFTER
    assert not offsets.note_start(P, 100)
    heard(offsets, store)

    assert offsets.note_start(P, 100)


def test_one_partition_where_answers_were_committed_shows_a_group_that_served(offsets: KafkaOffsets) -> None:
    """A new partition says nothing of the others."""
    offsets.begin(P, 5, is_new=True)
    assert not offsets.has_served

    offsets.begin(Partition("r", 1), 7, is_new=False)

    assert offsets.has_served


def test_a_worker_that_stands_back_leaves_its_group_where_it_began(offsets: KafkaOffsets, store: Store) -> None:
    """Exactly once, the group stands behind answered records. Partitions that served or left are not touched."""
    offsets.begin(P, 5, is_new=True)
    offsets.commit({P: 60})
    offsets.begin(Partition("r", 1), 7, is_new=False)
    offsets.begin(Partition("r", 2), 9, is_new=True)
    offsets.forget([Partition("r", 2)])
    for number in (3, 4):
        offsets.begin(Partition("r", number), 0, is_new=True)
    store.commits.clear()

    offsets.stand_back({Partition("r", 3): 40, Partition("r", 4): None})

    assert store.said == [(0, 5, "new"), (3, 40, "new")]

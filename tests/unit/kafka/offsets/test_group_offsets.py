"""Who writes what to the group's store: each row of the table in `group_offsets.py`."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.fakes import Clock
from worker.core.records import CommitResult, Partition
from worker.kafka.client.log import ClientLog
from worker.kafka.offsets.group_offsets import KafkaOffsets
from worker.kafka.offsets.notes import NONE, Attempts
from worker.kafka.offsets.standing_lookup import GroupStanding

P = Partition("r", 0)
REFUSED = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)


class Store:
    """A consumer of which only commits are asked."""

    def __init__(self) -> None:
        self.commits: list[TopicPartition] = []

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        self.commits += offsets

    @property
    def last(self) -> tuple[int, str | None]:
        return self.commits[-1].offset, self.commits[-1].metadata


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def offsets(store: Store) -> KafkaOffsets:
    consumer = cast("Consumer", store)
    return KafkaOffsets(consumer, lambda: consumer, ClientLog(logging.getLogger("kafka")), Clock())


def heard(offsets: KafkaOffsets, store: Store, error: KafkaError | None = None) -> Any:
    """The last commit comes back."""
    return offsets.heard(error, store.commits[-1:])


def begun(offsets: KafkaOffsets, store: Store, earlier: Attempts = NONE) -> None:
    """An attempt that the group has taken."""
    note = offsets.begin_attempt(P, 5, earlier)
    assert not offsets.note(P, note)
    heard(offsets, store)
    assert offsets.note(P, note)


def test_a_commit_of_the_delivery_carries_no_note(offsets: KafkaOffsets, store: Store) -> None:
    """So progress clears what was noted."""
    offsets.commit({P: 7})
    heard(offsets, store)

    assert store.last == (7, None)
    assert offsets.commit_results() == [CommitResult({P: 7}, {})]


def test_the_delivery_hears_of_no_note(offsets: KafkaOffsets, store: Store) -> None:
    """What the group refuses is returned all the same, for it may be for good."""
    offsets.note_start(P, 100)

    assert heard(offsets, store, REFUSED) == [REFUSED]
    assert store.last == (100, "attempts=0")
    assert offsets.commit_results() == []


def test_an_attempt_counts_those_before_it(offsets: KafkaOffsets, store: Store) -> None:
    """At the offset where the group stands."""
    begun(offsets, store, Attempts(2))

    assert store.last == (5, "attempts=3")


def test_an_isolated_run_is_noted_with_the_attempt_and_withdrawn(offsets: KafkaOffsets, store: Store) -> None:
    """The second note takes the place of the first."""
    begun(offsets, store)
    offsets.note_isolated_run(P, 8)
    assert store.last == (8, "attempts=1 trial")
    heard(offsets, store)

    assert not offsets.withdraw_note(P, 8)
    assert offsets.is_marking([P])
    heard(offsets, store)

    assert store.last == (8, "attempts=1")
    assert offsets.withdraw_note(P, 8)
    assert len(store.commits) == 3


def test_the_note_of_a_record_that_ran_is_withdrawn_when_its_answer_is_to_be_committed(
    offsets: KafkaOffsets, store: Store
) -> None:
    """As `withdraw_note` does it: to be called until the group has taken it. Of another record there is no note."""
    begun(offsets, store)
    assert offsets.withdraw_notes({P: 9})
    offsets.note_isolated_run(P, 8)
    heard(offsets, store)

    assert offsets.withdraw_notes({P: 8, Partition("r", 1): 9})
    assert store.last == (8, "attempts=1 trial")
    assert not offsets.withdraw_notes({P: 9})
    heard(offsets, store)

    assert store.last == (8, "attempts=1")
    assert offsets.withdraw_notes({P: 9})
    assert len(store.commits) == 3


def test_what_was_noted_of_a_partition_that_left_is_not_withdrawn(offsets: KafkaOffsets, store: Store) -> None:
    """A commit for it would undo what its next owner commits."""
    begun(offsets, store)
    offsets.note_isolated_run(P, 8)
    offsets.forget([P])

    assert offsets.withdraw_notes({P: 9})
    assert len(store.commits) == 2


def test_our_own_note_is_no_earlier_attempt(offsets: KafkaOffsets, store: Store) -> None:
    """We are alive. A note at another offset, or with another count, is of another process."""
    begun(offsets, store)
    offsets.forget([P])

    assert offsets.earlier_attempts(P, 5, GroupStanding(5, Attempts(1))) == Attempts(0)
    assert offsets.earlier_attempts(P, 6, GroupStanding(6, Attempts(1))) == Attempts(1)
    assert offsets.earlier_attempts(P, 5, GroupStanding(5, Attempts(2))) == Attempts(2)


def test_a_partition_that_left_has_no_attempt_under_way(offsets: KafkaOffsets, store: Store) -> None:
    """Its next owner notes its own."""
    begun(offsets, store)
    offsets.forget([P])

    assert not offsets.note_isolated_run(P, 8)
    assert len(store.commits) == 1

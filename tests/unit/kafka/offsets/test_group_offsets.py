"""Who writes what to the group's store: each row of the table in `group_offsets.py`."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.fakes import Clock
from worker.core.records import Partition
from worker.kafka.client.errors import ClientLog
from worker.kafka.offsets import group_offsets
from worker.kafka.offsets.group_offsets import RETRY_AFTER, KafkaOffsets
from worker.kafka.offsets.standings import NEW, NONE, Attempts, GroupStanding, read_attempts

P = Partition("r", 0)
REFUSED = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)


class Store:
    """A consumer that only commits. It keeps each commit, except those that it refuses."""

    def __init__(self) -> None:
        self.commits: list[TopicPartition] = []
        self.taken: TopicPartition | None = None
        self.refuses = 0

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        self.commits += offsets
        if self.refuses:
            self.refuses -= 1
        else:
            self.taken = offsets[-1]

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        assert self.taken is not None
        return [self.taken]

    @property
    def last(self) -> tuple[int, str | None]:
        return self.commits[-1].offset, self.commits[-1].metadata


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


def heard(offsets: KafkaOffsets, store: Store, error: KafkaError | None = None) -> Any:
    """Let the result of the last commit arrive."""
    return offsets.heard(error, store.commits[-1:])


def begun(offsets: KafkaOffsets, store: Store, earlier: Attempts = NONE) -> None:
    """Begin an attempt, and let the group take its note."""
    note = offsets.begin_attempt(P, 5, earlier)
    assert not offsets.note(P, note)
    heard(offsets, store)
    assert offsets.note(P, note)


def test_the_delivery_hears_of_no_note(offsets: KafkaOffsets, store: Store) -> None:
    """A refusal is returned all the same, for it may be final."""
    offsets.note_start(P, 100)

    assert heard(offsets, store, REFUSED) == [REFUSED]
    assert store.last == (100, "attempts=0 new")
    assert offsets.commit_results() == []


def test_an_attempt_counts_those_before_it(offsets: KafkaOffsets, store: Store) -> None:
    """The note lies at the offset where the group stands."""
    begun(offsets, store, Attempts(2))

    assert store.last == (5, "attempts=3")


def test_a_group_without_a_commit_of_the_delivery_is_new_until_there_is_one(
    offsets: KafkaOffsets, store: Store
) -> None:
    """Deaths do not change that. A commit of another tool, or of a worker without that word, counts as service."""
    begun(offsets, store, NEW)
    assert store.last == (5, "attempts=1 new")
    assert read_attempts("attempts=1 new") == Attempts(1, is_new=True)
    begun(offsets, store, Attempts(1, is_new=True))
    assert store.last == (5, "attempts=2 new")
    assert not offsets.has_served

    begun(offsets, store, NONE)

    assert offsets.has_served


def test_a_worker_that_stands_back_leaves_its_group_where_it_began(offsets: KafkaOffsets, store: Store) -> None:
    """It notes no attempt, since no record ended it. Exactly once, the group stands behind answered records.

    Partitions that served or left are not touched.
    """
    begun(offsets, store, NEW)
    offsets.commit({P: 60})
    offsets.begin_attempt(Partition("r", 1), 7, NONE)
    offsets.begin_attempt(Partition("r", 2), 9, NEW)
    offsets.forget([Partition("r", 2)])
    for number in (3, 4):
        offsets.begin_attempt(Partition("r", number), 0, NEW)
    store.commits.clear()

    offsets.stand_back({Partition("r", 3): 40, Partition("r", 4): None})

    assert [(at.partition, at.offset, at.metadata) for at in store.commits] == [
        (0, 5, "attempts=0 new"),
        (3, 40, "attempts=0 new"),
    ]


def test_the_note_of_a_record_that_ran_is_withdrawn_when_its_answer_is_to_be_committed(
    offsets: KafkaOffsets, store: Store
) -> None:
    """It is called until the group has taken it, like `withdraw_note`. Other records have no note."""
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


@pytest.fixture
def leaving(offsets: KafkaOffsets, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> KafkaOffsets:
    """A record is noted to run alone; waiting for the group lets time pass."""
    monkeypatch.setattr(group_offsets, "time", SimpleNamespace(sleep=clock.wait))
    begun(offsets, store)
    offsets.note_isolated_run(P, 8)
    heard(offsets, store)
    store.commits.clear()
    return offsets


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_the_note_of_a_run_that_is_broken_off_is_cleared_though_the_group_refuses(
    leaving: KafkaOffsets, store: Store, refused: int
) -> None:
    """A leaving partition hears no result, so the group is asked, and told again."""
    store.refuses = refused

    leaving.clear_note(P, 8, 1.0)

    assert [(at.offset, at.metadata) for at in store.commits] == [(8, "attempts=1")] * (refused + 1)


@pytest.mark.parametrize("refused", [1, 2])
def test_the_note_of_a_run_that_is_settled_is_cleared_by_the_commit_of_its_answer(
    leaving: KafkaOffsets, store: Store, refused: int
) -> None:
    """The delivery's own commit was refused."""
    store.refuses = refused
    leaving.commit({P: 9})

    leaving.clear_note(P, 9, 1.0)

    assert [(at.offset, at.metadata) for at in store.commits] == [(9, None)] * (refused + 1)


def test_a_group_that_refuses_for_ever_is_waited_for_no_longer_than_asked(
    leaving: KafkaOffsets, store: Store, clock: Clock
) -> None:
    """The wait holds up its partitions, or the end of the process."""
    store.refuses, began = 1000, clock.now

    leaving.clear_note(P, 8, 1.0)

    assert 1.0 <= clock.now - began <= 1.0 + 2 * RETRY_AFTER
    assert len(store.commits) > 5


def test_our_own_note_is_no_earlier_attempt(offsets: KafkaOffsets, store: Store) -> None:
    """This process is alive. A note at another offset, or with another count, is from another process."""
    begun(offsets, store)
    offsets.forget([P])

    assert offsets.earlier_attempts(P, 5, GroupStanding(5, Attempts(1))) == Attempts(0)
    assert offsets.earlier_attempts(P, 6, GroupStanding(6, Attempts(1))) == Attempts(1)
    assert offsets.earlier_attempts(P, 5, GroupStanding(5, Attempts(2))) == Attempts(2)


def test_a_record_of_which_another_process_died_stays_one(offsets: KafkaOffsets, store: Store) -> None:
    """Its partition left before its answer was committed, and came back. A later record has no such history."""
    begun(offsets, store, Attempts(3, is_isolated=True))
    offsets.forget([P])

    assert offsets.earlier_attempts(P, 5, GroupStanding(5, Attempts(4, is_isolated=True))) == Attempts(
        3, is_isolated=True
    )

    begun(offsets, store, Attempts(3, is_isolated=True))
    offsets.note_isolated_run(P, 8)
    offsets.forget([P])

    assert offsets.earlier_attempts(P, 8, GroupStanding(8, Attempts(4, is_isolated=True))) == Attempts(3)

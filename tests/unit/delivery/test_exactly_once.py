"""Exactly once: what is in a transaction, when it ends, and what happens if it fails."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.builders import World, sources
from tests.chunks import P0, P1, RAW, record
from tests.fakes import TransactionFate
from worker.core.failures import Code, KafkaFatal
from worker.core.ordering.ledger import Places, Stretch
from worker.core.records import Partition, Rejection, nothing_owed
from worker.delivery.exactly_once import (
    END_DUE,
    FIRST_PAUSE,
    FORGOTTEN_AFTER,
    LONGEST_PAUSE,
    PATIENCE,
    PATIENCE_WITH_MANY,
)

FAR = 1e9
ABORTED = TransactionFate(is_committed=False, failure="the broker said no")
IN_DOUBT = TransactionFate(is_committed=True, failure="nobody answered")


def world_of(*, dead_letters: bool = False) -> World:
    world = World(exactly_once=True, commit_interval=0.1, dead_letters=dead_letters).start(P0, P1)
    world.source.poll(1, 0.0)
    return world


@pytest.fixture
def world() -> World:
    return world_of()


def take(world: World, *offsets: int, partition: Partition = P0) -> Places:
    """Take records together."""
    records = [record(at, partition=partition) for at in offsets]
    return world.ledger.track(records, [1] * len(records), [10] * len(records), world.clock.now)


def rejection(offset: int, partition: Partition = P0, *, is_silent: bool = False) -> Rejection:
    return Rejection(record(offset, partition=partition), Code.INTERNAL, "no", RAW, is_silent=is_silent)


def send(world: World, *offsets: int, partition: Partition = P0, skipped: Collection[int] = ()) -> list[Stretch]:
    """Take records together, and send an error for each except the skipped ones."""
    places = take(world, *offsets, partition=partition)
    answers = [rejection(offset, partition, is_silent=offset in skipped) for offset in offsets]
    stretches = world.ledger.answer([(places, range(len(offsets)), answers)])
    world.delivery.send(stretches)
    return stretches


def make_progress(world: World) -> list[Partition]:
    return list(world.delivery.make_progress(world.clock.now, 0.0))


def turn_after(world: World, seconds: float) -> list[Partition]:
    world.clock.wait(seconds)
    return make_progress(world)


def end(world: World) -> None:
    """Let the transaction end, and hear of it."""
    turn_after(world, LONGEST_PAUSE)
    turn_after(world, LONGEST_PAUSE)


def turn_until_idle(world: World) -> None:
    while not world.delivery.is_idle:
        turn_after(world, 0.5)


def test_a_skipped_record_is_committed_without_a_message(world: World) -> None:
    """A transaction may contain only offsets."""
    send(world, 4, skipped=[4])

    make_progress(world)

    assert world.transactions.commits == [([], {P0: 5})]
    turn_after(world, 0.1)
    assert len(world.events.settled_at) == 1


def test_a_transaction_ends_at_once_when_everything_taken_is_in_it(world: World) -> None:
    """With nothing else under way there is nothing to wait for."""
    send(world, 4)

    make_progress(world)

    assert world.transactions.is_ending


def test_a_transaction_ends_with_its_interval(world: World) -> None:
    """While other records are under way, answers gather until the interval has passed."""
    take(world, 0, partition=P1)
    send(world, 4)

    turn_after(world, 0.099)
    assert not world.transactions.is_ending
    send(world, 5)
    turn_after(world, 0.001)

    [(messages, offsets)] = world.transactions.commits
    assert sources(messages) == ["requests/0/4", "requests/0/5"]
    assert offsets == {P0: 6}


@pytest.mark.parametrize("fate", [ABORTED, IN_DOUBT])
def test_what_was_taken_back_is_forgotten_and_given_back(world: World, fate: TransactionFate) -> None:
    """After an end that failed or is in doubt, its partitions are read again; other partitions are not disturbed."""
    take(world, 0, partition=P1)
    world.transactions.fate = lambda: fate
    send(world, 4, 5)
    take(world, 6)

    turn_after(world, 0.1)
    astray = turn_after(world, 0.01)

    assert astray == [P0]
    assert world.ledger.records == 1
    assert world.events.endings == [(world.events.endings[0][0], 2)]


def test_a_record_whose_own_transaction_fails_stops_the_worker(world: World) -> None:
    """The reason names the record, and what the broker said."""
    world.transactions.fate = lambda: ABORTED

    for _ in range(PATIENCE - 1):
        send(world, 4, 5)
        turn_after(world, LONGEST_PAUSE)
        turn_after(world, 0.01)
    send(world, 4, 5)
    turn_after(world, LONGEST_PAUSE)

    with pytest.raises(KafkaFatal, match=r"the answer to requests/0/4: the broker said no"):
        turn_after(world, 0.01)

    assert len(world.transactions.commits) == PATIENCE


@pytest.mark.parametrize("wrong", [4, 6, 8], ids=["first", "middle", "last"])
def test_an_answer_that_no_transaction_takes_is_found_wherever_it_stands_in_its_chunk(world: World, wrong: int) -> None:
    """All answers before it are committed, once each and in order, although they left together with it."""

    def fate() -> TransactionFate:
        return ABORTED if f"requests/0/{wrong}" in sources(world.transactions.commits[-1][0]) else TransactionFate()

    def read_again() -> None:
        send(world, *range(4, 9))
        for _ in range(5 * PATIENCE):
            if turn_after(world, LONGEST_PAUSE):
                send(world, *range(world.broker.committed.get(P0, 4), 9))

    world.transactions.fate = fate

    with pytest.raises(KafkaFatal, match=rf"nothing in it but the answer to requests/0/{wrong}: the broker said no"):
        read_again()

    assert sources(world.broker.answers) == [f"requests/0/{offset}" for offset in range(4, wrong)]
    assert world.broker.committed.get(P0, 4) == wrong


def test_an_offset_without_a_record_is_not_taken_for_the_record_that_fails(world: World) -> None:
    """It may be alone with that record in a transaction, and before it."""

    def gap_and_it() -> None:
        for _ in range(PATIENCE):
            gap = world.ledger.track_gap(P0, 3, world.clock.now)
            nothing = world.ledger.answer([(gap, [0], [nothing_owed(P0, 3)])])
            world.delivery.send(nothing)
            send(world, 4)
            end(world)

    world.transactions.fate = lambda: ABORTED

    with pytest.raises(KafkaFatal, match=r"nothing in it but the answer to requests/0/4: the broker said no"):
        gap_and_it()


def test_an_answer_that_no_transaction_takes_stops_the_worker_however_well_other_partitions_do(world: World) -> None:
    """The success of other partitions proves nothing for this answer, which would be tried for ever."""

    def fate() -> TransactionFate:
        return ABORTED if "requests/0/4" in sources(world.transactions.commits[-1][0]) else TransactionFate()

    def others_and_it() -> None:
        for at in range(1_000):
            send(world, at, partition=P1)
            turn_after(world, LONGEST_PAUSE)
            send(world, 4)
            turn_after(world, LONGEST_PAUSE)

    world.transactions.fate = fate

    with pytest.raises(KafkaFatal, match=r"nothing in it but the answer to requests/0/4: the broker said no"):
        others_and_it()

    assert len(world.broker.answers) <= 2 * PATIENCE


def test_a_partition_that_brings_nothing_more_is_forgiven(world: World) -> None:
    """If a transaction was committed unheard, its partition's failures are forgotten after a while."""
    world.transactions.fate = lambda: TransactionFate(failure="nobody knows")
    send(world, 4)
    turn_after(world, 0.1)
    turn_after(world, 0.1)
    for at in range(3 * PATIENCE):
        world.transactions.fate = lambda: ABORTED
        send(world, at, partition=P1)
        end(world)
        world.transactions.fate = TransactionFate
        send(world, at, partition=P1)
        turn_after(world, LONGEST_PAUSE)
        turn_after(world, FORGOTTEN_AFTER)

    assert world.broker.committed[P1] == 3 * PATIENCE


def test_a_partition_that_goes_away_takes_its_failures_along(world: World) -> None:
    """Its next owner starts its own count."""
    for _ in range(PATIENCE - 1):
        world.transactions.fate = lambda: ABORTED
        send(world, 4)
        end(world)

    world.delivery.lost([P0])
    send(world, 0, partition=P1)
    end(world)

    assert world.broker.committed == {}


def test_transactions_that_were_too_large_grow_again_little_by_little(world: World) -> None:
    """If only 40 answers get through in time, most transactions succeed with half as many or more.

    All answers leave together, so each transaction takes a slice, and none is cut off or sent twice.
    """
    owed, sizes = 2_000, []

    def fate() -> TransactionFate:
        sizes.append(len(world.transactions.commits[-1][0]))
        return TransactionFate() if sizes[-1] <= 40 else ABORTED

    world.transactions.fate = fate
    send(world, *range(owed))
    for _ in range(owed):
        if turn_after(world, 0.5):
            send(world, *range(world.broker.committed.get(P0, 0), owed))

    assert world.broker.committed == {P0: owed}
    assert sources(world.broker.answers) == [f"requests/0/{offset}" for offset in range(owed)]
    assert sizes[:5] == [owed, owed, owed, 1, 2]
    after_growth = sizes[20:]
    assert min(after_growth[:-1]) >= 20
    assert sum(size > 40 for size in after_growth) <= len(after_growth) / 4


def fail_often(world: World, *partitions: Partition) -> None:
    """Make transactions fail until they hold one record each."""
    world.transactions.fate = lambda: ABORTED
    for _ in range(PATIENCE_WITH_MANY):
        for partition in partitions:
            send(world, 4, 5, partition=partition)
        end(world)
    world.transactions.fate = TransactionFate
    world.transactions.commits.clear()


def sizes_until_done(world: World, partition: Partition, count: int) -> list[int]:
    """The sizes of the transactions that send so many answers."""
    send(world, *range(count), partition=partition)
    turn_until_idle(world)
    return [len(messages) for messages, _ in world.transactions.commits]


def test_a_transaction_that_is_nearly_full_takes_the_first_answers_of_the_next_chunk(world: World) -> None:
    """The others of that chunk are the first ones in the next transaction."""
    fail_often(world, P0)
    for first in range(0, 30, 3):
        send(world, *range(first, first + 3))

    turn_until_idle(world)

    assert [len(messages) for messages, _ in world.transactions.commits] == [1, 2, 3, 4, 5, 7, 8]
    assert sources(world.broker.answers) == [f"requests/0/{offset}" for offset in range(30)]
    assert [offsets for _, offsets in world.transactions.commits][:3] == [{P0: 1}, {P0: 3}, {P0: 6}]


def test_what_comes_of_a_partition_that_failed_is_tried_alone_again(world: World) -> None:
    """This holds even if transactions have grown meanwhile: only then the answer that no transaction takes is known."""
    fail_often(world, P0)
    sizes_until_done(world, P1, 100)
    world.transactions.commits.clear()

    send(world, 4, 5)
    send(world, *range(100, 103), partition=P1)
    turn_until_idle(world)

    assert sources(world.transactions.commits[0][0]) == ["requests/0/4"]
    assert len(world.transactions.commits) == 2, "all was well with it, so the others share one again"


def test_after_a_failure_the_next_transaction_waits(world: World) -> None:
    """A broker in trouble is not asked again at once."""
    world.transactions.fate = lambda: ABORTED
    send(world, 4)
    make_progress(world)
    turn_after(world, 0.01)
    send(world, 4)
    assert not world.transactions.is_open
    assert world.delivery.next_due == pytest.approx(world.clock.now + FIRST_PAUSE)

    turn_after(world, FIRST_PAUSE)

    assert world.transactions.is_open


def test_a_revoke_ends_the_transaction(world: World) -> None:
    """Answers of the leaving partitions are committed before they leave, also those that wait for their turn."""
    take(world, 0, partition=P1)
    send(world, 4)
    turn_after(world, 0.1)
    send(world, 5)
    take(world, 6)

    unsettled = world.delivery.revoke([P0], deadline=world.clock.now + 1.0)

    assert unsettled == 1
    assert world.broker.committed == {P0: 6}
    assert sources(world.broker.answers) == ["requests/0/4", "requests/0/5"]


def test_a_revoke_that_fails_gives_back_what_stays(world: World) -> None:
    """Leaving partitions belong to their next owner; the transaction's other partitions are read again here."""
    send(world, 4)
    send(world, 0, partition=P1)
    take(world, 1, partition=P1)
    world.transactions.fate = lambda: ABORTED

    unsettled = world.delivery.revoke([P0], deadline=world.clock.now + 1.0)

    assert unsettled == 1
    assert make_progress(world) == [P1]
    assert world.broker.answers == []


def test_losing_partitions_is_no_failure(world: World) -> None:
    """This holds for any number of losses: transactions stay large, and the worker goes on."""
    for at in range(2 * PATIENCE):
        send(world, at)
        send(world, at, partition=P1)
        world.delivery.lost([P0])
        turn_after(world, 0.01)
        make_progress(world)

    assert make_progress(world) == []
    assert world.delivery.next_due is None


def test_the_end_of_a_lost_partitions_transaction_disturbs_nothing(world: World) -> None:
    """It ends after the partition came back: the old records' failure does not give back the new ones."""
    send(world, 4)
    world.transactions.fate = lambda: ABORTED
    make_progress(world)
    world.delivery.lost([P0])
    send(world, 4)

    assert turn_after(world, 0.01) == []

    assert world.ledger.records == 1


def test_a_transaction_that_another_one_took_back_is_in_doubt_no_more(world: World) -> None:
    """The worker is fenced off and ends, but it may still speak to the group."""
    send(world, 4)
    make_progress(world)

    def fenced(_: float) -> None:
        raise KafkaFatal("another process uses the transactional id")

    world.transactions.ended = fenced  # type: ignore[assignment, method-assign]

    with pytest.raises(KafkaFatal):
        make_progress(world)

    assert not world.delivery.is_in_doubt(P0)


def test_when_it_is_urgent_nothing_waits_for_the_interval(world: World) -> None:
    """A drain commits as soon as there is something to commit."""
    take(world, 0, partition=P1)
    send(world, 4)
    make_progress(world)
    assert not world.transactions.is_ending

    world.delivery.commit_promptly()
    make_progress(world)

    assert world.transactions.is_ending


def test_next_due_says_when_the_transaction_ends(world: World) -> None:
    """It is the end of the interval while the transaction is open, and soon while it ends."""
    take(world, 0, partition=P1)
    send(world, 4)
    assert world.delivery.next_due == pytest.approx(world.clock.now + 0.1)

    turn_after(world, 0.1)

    assert world.delivery.next_due == pytest.approx(world.clock.now + END_DUE)


def test_a_revoke_does_not_wait_for_what_cannot_be_sent(world: World) -> None:
    """Answers that wait behind a failing transaction are left to the next owner at once."""
    send(world, 0, partition=P1)
    make_progress(world)
    world.transactions.fate = lambda: ABORTED
    send(world, 4)
    turn_after(world, 0.01)
    send(world, 1, partition=P1)
    turn_after(world, 0.5)
    send(world, 5)

    world.delivery.revoke([P0], deadline=world.clock.now + FAR)

    assert turn_after(world, 0.1) == [P1]


def test_an_answer_is_let_go_once_it_is_sent(world: World) -> None:
    """Only its place waits for the end of the transaction."""
    [(places, _, _)] = send(world, 4)

    assert rejection(4) not in places.answers

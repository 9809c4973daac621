"""A worker at a topic of others stops before it has answered anything; a worker that has served goes on."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

import pytest

from tests.builders import BOUNDS, World, names
from tests.chunks import P0, P1, record
from tests.fakes import Newcomer, TransactionFate
from worker.core.failures import TooManyRejections
from worker.core.records import Partition, Record
from worker.core.rejections import HOLD, FirstRejections


def of_payments(read: Record) -> str | None:
    return "payments" if read.value == b"odd" else None


@pytest.fixture
def group() -> Newcomer:
    return Newcomer()


def world_of(group: Newcomer, *, exactly_once: bool = False, **fields: object) -> World:
    """A worker that accepts fewer than four rejections in a row at first."""
    takes = "x FP32[batch, 1]"
    first = FirstRejections(group, of_payments, takes, attrgetter("message"), is_exact=exactly_once, limit=4)
    return World(first=first, exactly_once=exactly_once, **fields).start(P0, P1)  # type: ignore[arg-type]


def odd(*offsets: int) -> list[Record]:
    return [record(at, value=b"odd") for at in offsets]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_the_first_records_that_are_no_requests_stop_the_worker(exactly_once: bool, group: Newcomer) -> None:  # noqa: FBT001  # a parameter
    """Nothing is answered, dead-lettered or committed: the group stands where it began."""
    world = world_of(group, exactly_once=exactly_once)
    world.broker.append(*odd(0, 1, 2, 3, 4))

    with pytest.raises(TooManyRejections) as stop:
        world.turn_for(1.0)

    assert world.answered() == []
    assert world.broker.committed == {}
    assert group.stood_back == [{}]
    said = str(stop.value)
    assert "4 records in a row were refused, the last one requests/0/3" in said
    assert "It looks like payments. The worker takes x FP32[batch, 1]" in said
    assert "REJECTION_LIMIT=0" in said


@pytest.mark.parametrize(("exactly_once", "stands"), [(False, {}), (True, {P0: 3})])
def test_the_limit_counts_those_that_were_answered_too(
    exactly_once: bool,  # noqa: FBT001  # a parameter
    stands: dict[Partition, int],
    group: Newcomer,
) -> None:
    """If they come slowly, each is answered after a moment. Exactly once, it must not be answered again."""
    world = world_of(group, exactly_once=exactly_once)
    for offset in range(3):
        world.broker.append(*odd(offset))
        world.turn_for(HOLD + 0.2)
    assert world.answered("error") == names(0, 1, 2)
    world.broker.append(record(3, value=b"?"))

    with pytest.raises(TooManyRejections, match=r"topic\? The last one was refused so: expected rows of 4 bytes"):
        world.turn_for(1.0)

    assert group.stood_back == [stands]


def test_answers_that_may_be_durable_or_not_leave_their_partition_as_it_is(group: Newcomer) -> None:
    """This is exactly once, while their transaction ends: in either case nothing is answered twice."""
    world = world_of(group, exactly_once=True)
    world.transactions.fate = lambda: TransactionFate(heard_after=9.0)
    world.broker.append(*odd(0))
    world.turn_for(HOLD + 0.3)
    world.broker.append(*odd(1, 2, 3))

    with pytest.raises(TooManyRejections):
        world.turn_for(1.0)

    assert group.stood_back == [{P0: None}]


def test_a_few_wait_for_a_moment_and_no_longer(group: Newcomer) -> None:
    """A user who tries the worker with one bad request gets its error."""
    world = world_of(group)
    world.broker.append(*odd(0, 1))

    world.turn_for(HOLD * 0.8)
    assert world.answered() == []
    world.turn_for(HOLD)

    assert world.answered("error") == names(0, 1)
    assert world.broker.committed[P0] == 2


@pytest.mark.parametrize("exactly_once", [False, True])
def test_one_request_ends_it(exactly_once: bool, group: Newcomer) -> None:  # noqa: FBT001  # a parameter
    """Any number of bad records may come then, and the first ones are answered in order."""
    world = world_of(group, exactly_once=exactly_once)
    world.broker.append(*odd(0, 1, 2))
    world.turn(2)
    world.broker.append(record(3, 1.0), *odd(4, 5, 6, 7, 8, 9))

    world.turn_for(HOLD * 0.8)

    assert world.answered() == names(*range(10))
    assert world.answered("error") == names(0, 1, 2, 4, 5, 6, 7, 8, 9)


def test_one_request_of_a_poll_ends_it(group: Newcomer) -> None:
    """It may be of another partition, and come last."""
    world = world_of(group)
    world.broker.append(*odd(*range(9)), record(0, 1.0, partition=P1))

    world.turn_for(HOLD * 0.8)

    assert world.answered("error") == names(*range(9))
    assert world.answered("ok") == ["requests/1/0"]


def test_a_group_that_has_served_is_not_stopped(group: Newcomer) -> None:
    """It is not held up either: a publisher may be broken for longer than a worker lives."""
    group.has_served = True
    world = world_of(group)
    world.broker.append(*odd(*range(9)))

    world.turn_for(HOLD * 0.8)

    assert world.answered("error") == names(*range(9))


def test_a_group_that_turns_out_to_have_served_is_not_held_up(group: Newcomer) -> None:
    """Another partition may be the first to tell, when these records are held already."""
    world = world_of(group)
    world.broker.append(*odd(0, 1, 2))
    world.turn(2)
    assert world.answered() == []

    group.has_served = True
    world.turn_for(HOLD * 0.5)

    assert world.answered("error") == names(0, 1, 2)


def test_what_says_nothing_of_publishers_is_not_counted(group: Newcomer) -> None:
    """Skipped and unreadable records pass at once: a damaged batch stops no worker."""
    world = world_of(group)
    world.broker.append(*[record(at, value=b"skip") for at in range(5)])
    unreadable = [replace_unreadable(record(at, value=b"odd")) for at in range(5, 10)]
    world.broker.append(*unreadable)

    world.turn_for(HOLD * 0.8)

    assert world.ledger.records == 0
    assert group.stood_back == []


def replace_unreadable(read: Record) -> Record:
    return read._replace(unreadable="CRC")


def test_partitions_that_leave_take_their_rejections_along(group: Newcomer) -> None:
    """Their next owner reads them again, and they no longer count here."""
    world = world_of(group)
    world.broker.append(*odd(0, 1, 2))
    world.turn(2)
    world.source.revoke(P0)
    world.turn()
    world.broker.append(*[record(at, value=b"odd", partition=P1) for at in range(3)])

    world.turn_for(HOLD + 0.2)

    assert world.answered("error") == [f"requests/1/{at}" for at in range(3)]


def test_a_worker_that_is_asked_to_stop_answers_what_it_holds(group: Newcomer) -> None:
    """A drain does not wait for records that are only held."""
    world = world_of(group)
    world.broker.append(*odd(0, 1))
    world.turn(2)
    world.signals.stop_asked = True

    world.worker.run()

    assert world.answered("error") == names(0, 1)
    assert world.broker.committed[P0] == 2


def test_a_worker_that_holds_few_is_stopped_all_the_same(group: Newcomer) -> None:
    """If fewer than the limit may be in flight, it lets records go that were held for long enough."""
    world = world_of(group, bounds=replace(BOUNDS, records=2), chunk=2)
    world.broker.append(*odd(*range(9)))

    with pytest.raises(TooManyRejections, match="4 records in a row"):
        world.turn_for(3.0)

"""The looks after which a partition counts as stalled."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chunks import P0
from worker.core.records import Partition
from worker.core.stalls import Reach, Stall, Stalls

LOOKS = 3
STANDS = Reach(position=13, stable=21, end=21, is_fetched=True, answers=0)


def after(*reaches: Reach | None) -> Stall | None:
    """The stall found after these looks, one a second; None: the partition was not read."""
    stalls, found = Stalls(LOOKS), None
    for second, reach in enumerate(reaches):
        found = stalls.seen({} if reach is None else {P0: reach}, float(second)).get(P0)
    return found


def answered(reach: Reach, times: int) -> Sequence[Reach]:
    """The reach, with one more answer each time."""
    return [reach._replace(answers=reach.answers + n) for n in range(times)]


def test_a_partition_that_stands_while_its_broker_answers_is_stalled() -> None:
    """It takes as many looks as configured, and the stall counts from the first of them."""
    assert after(*answered(STANDS, LOOKS)) is None
    assert after(*answered(STANDS, LOOKS + 1)) == Stall(13, 0.0, is_transaction=False, is_due=True)


def test_one_behind_which_nothing_may_be_read_is_held_back_by_a_transaction() -> None:
    """If records may be read and are not, there is another reason."""
    held_back = after(*answered(STANDS._replace(stable=13), LOOKS + 1))
    other = after(*answered(STANDS._replace(stable=14), LOOKS + 1))

    assert held_back is not None
    assert other is not None
    assert held_back.is_transaction
    assert "a transaction of another producer is open since offset 13" in held_back.reason
    assert not other.is_transaction
    assert "no record from offset 13 on" in other.reason


@pytest.mark.parametrize(
    ("why", "reaches"),
    [
        ("it is at its end", answered(STANDS._replace(end=13), 60)),
        ("it is paused, or the client's queue is full", answered(STANDS._replace(is_fetched=False), 60)),
        ("its broker does not answer", [STANDS] * 60),
        ("it has no broker", [STANDS._replace(answers=0)] * 60),
        ("it gets on", [STANDS._replace(position=13 + n, end=100, answers=n) for n in range(60)]),
        ("it is not read now", [*answered(STANDS, 3), None, *answered(STANDS, 3)]),
    ],
)
def test_one_that_is_idle_slow_or_moving_is_not(why: str, reaches: Sequence[Reach | None]) -> None:
    """A partition that was taken away in between is not stalled either."""
    assert after(*reaches) is None, why


def test_a_stall_is_found_beside_partitions_that_are_busy() -> None:
    """In most seconds records wait in the one queue, or all is paused: these looks neither count nor end a stall."""
    reaches = [reach._replace(is_fetched=reach.answers % 3 == 0) for reach in answered(STANDS, 3 * LOOKS + 2)]

    assert after(*reaches[: 3 * LOOKS]) is None
    assert after(*reaches[: 3 * LOOKS + 1]) == Stall(13, 0.0, is_transaction=False, is_due=True)
    assert after(*reaches) == Stall(13, 0.0, is_transaction=False), "it is looked into once"


def test_a_stall_ends_with_the_first_record() -> None:
    """Another stall counts from the beginning."""
    stalls, other = Stalls(LOOKS), Partition("requests", 1)
    for second, reach in enumerate(answered(STANDS, LOOKS + 1)):
        stalls.seen({P0: reach, other: reach._replace(end=13)}, float(second))

    moved = STANDS._replace(position=20, answers=9)

    assert stalls.seen({P0: moved}, 9.0) == {}
    assert [stalls.seen({P0: reach}, 10.0) for reach in answered(moved, LOOKS)] == [{}] * LOOKS

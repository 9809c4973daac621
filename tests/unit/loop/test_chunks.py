"""Records that travel as one chunk through the whole loop, until one of them is odd."""

from __future__ import annotations

import math

import pytest

from tests.builders import FAULTY, NONSENSE, POISON, POLICY, SHORT, World, names
from tests.chunks import P0, P1, floats, record
from worker.core.records import ClosedBy

ROWS = POLICY.max_rows


def world_of(**fields: object) -> World:
    return World(joins=True, **fields).start(P0, P1)  # type: ignore[arg-type]


def results(world: World) -> list[bytes | None]:
    """The values of the results, without the errors."""
    return [answer.value for answer in world.broker.answers if dict(answer.headers)["status"] == b"ok"]


def test_neighbours_are_one_chunk_to_the_lanes() -> None:
    """Each is answered, in order, and the commit goes past the last one."""
    world = world_of()
    world.broker.append(*[record(at, at) for at in range(ROWS)])

    world.turn_for(0.5)

    (batch,) = world.lanes.ran
    (chunk,) = batch.chunks
    assert (batch.rows, len(chunk)) == (ROWS, ROWS)
    assert world.answered() == names(*range(ROWS))
    assert world.broker.committed == {P0: ROWS}


def test_a_chunk_is_cut_where_a_batch_is_full() -> None:
    """No batch goes half empty because the rest of a chunk would not fit."""
    world = world_of(chunk=100)
    world.broker.append(*[record(at, at) for at in range(ROWS + 3)])
    world.broker.append(*[record(at, at, partition=P1) for at in range(2 * ROWS - 3)])

    world.turn_for(0.5)

    assert [batch.rows for batch in world.lanes.ran] == [ROWS] * 3
    assert {batch.closed_by for batch in world.lanes.ran} == {ClosedBy.SIZE}
    assert world.broker.committed == {P0: ROWS + 3, P1: 2 * ROWS - 3}


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("bad", [POISON, FAULTY, SHORT, NONSENSE, math.nan])
@pytest.mark.parametrize("where", [0, 2, ROWS - 1, ROWS], ids=["first", "middle", "last", "first of the next"])
def test_one_bad_request_costs_its_chunk_nothing(where: int, bad: float, exactly_once: bool) -> None:  # noqa: FBT001
    """Whatever is wrong with one row, the other records of its chunk get their own results, in order."""
    world = world_of(exactly_once=exactly_once)
    world.broker.append(*[record(at, bad if at == where else at) for at in range(8)])

    world.turn_for(0.5)

    assert world.answered() == names(*range(8))
    assert world.answered("error") == names(where)
    assert results(world) == [floats(2 * at) for at in range(8) if at != where]
    assert [letter.value for letter in world.broker.answers if letter.topic == "dead-letters"] == [floats(bad)]
    assert world.broker.committed == {P0: 8}
    assert (world.ledger.records, world.ledger.rows, world.ledger.size) == (0, 0, 0)


def test_a_record_that_is_answered_twice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer would take the place of the first, and no other test of the loop would see it."""
    world = world_of()
    world.broker.append(*[record(at, at) for at in range(ROWS)])
    monkeypatch.setattr(world.states, "conclude", lambda predictions: predictions.append(predictions[0]))

    with pytest.raises(AssertionError, match="answered twice"):
        world.turn_for(0.5)

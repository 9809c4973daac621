"""Records that travel as one chunk through the whole loop, until one of them is odd."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest

from tests.builders import CONDUCT, NONSENSE, POISON, POLICY, SHORT, World
from tests.chunks import P0, P1, floats, record, singles
from tests.fakes import TransactionFate
from worker.core.batching.batcher import BatchPolicy
from worker.core.chunk import Chunk, Reading
from worker.core.records import ClosedBy
from worker.delivery.exactly_once import PATIENCE_WITH_MANY

ROWS = POLICY.max_rows
COLUMNS: tuple[Callable[[Chunk], Sequence[Any]], ...] = (
    attrgetter("records"),
    attrgetter("rows"),
    attrgetter("shapes"),
    lambda chunk: chunk.tensors[0],
    attrgetter("sizes"),
    attrgetter("at"),
)


def world_of(**fields: object) -> World:
    return World(joins=True, **fields).start(P0, P1)  # type: ignore[arg-type]


def names(*offsets: int) -> list[str]:
    return [f"requests/0/{offset}" for offset in offsets]


def results(world: World) -> list[bytes | None]:
    """The values of the results, without the errors."""
    return [answer.value for answer in world.broker.answers if dict(answer.headers)["status"] == b"ok"]


def together(reading: Reading) -> Reading:
    """The reading with its chunks joined into one."""
    ones = sorted((one for chunk in reading.chunks for one in singles(chunk)), key=lambda one: one.at[0])
    columns = [[each for one in ones for each in column(one)] for column in COLUMNS]
    records, rows, shapes, tensors, sizes, at = columns
    chunk = replace(ones[0], records=records, rows=rows, shapes=shapes, tensors=[tensors], sizes=sizes, at=at)
    return Reading([chunk], reading.rejections)


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
@pytest.mark.parametrize("bad", [POISON, SHORT, NONSENSE, math.nan])
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


@pytest.mark.parametrize("lengths", [[1, 3, 2, 1, 4, 1], [4, 1, 1, 3], [5, 1, 2, 9, 1]])
@pytest.mark.parametrize("bad", [None, POISON, NONSENSE, math.nan])
def test_records_of_different_lengths_keep_their_own_rows(lengths: list[int], bad: float | None) -> None:
    """Each answer has the rows of its own record, whatever the length of its neighbours."""
    world = World(joins=True).start(P0)
    read, wrong = world.codec.read, len(lengths) // 2
    world.codec.read = lambda records: together(read(records))  # type: ignore[method-assign]
    rows = [[float(10 * at + row) for row in range(length)] for at, length in enumerate(lengths)]
    if bad is not None:
        rows[wrong][-1] = bad
    world.broker.append(*[record(at, *values) for at, values in enumerate(rows)])

    world.turn_for(0.5)

    assert world.answered() == names(*range(len(lengths)))
    expected = [values for at, values in enumerate(rows) if bad is None or at != wrong]
    assert results(world) == [floats(*[2 * value for value in values]) for values in expected]
    assert world.broker.committed == {P0: len(lengths)}


def test_a_record_that_is_answered_twice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer would take the place of the first, and no other test of the loop would see it."""
    world = world_of()
    world.broker.append(*[record(at, at) for at in range(ROWS)])
    monkeypatch.setattr(world.states, "conclude", lambda predictions: predictions.append(predictions[0]))

    with pytest.raises(AssertionError, match="answered twice"):
        world.turn_for(0.5)


def test_a_partition_that_leaves_takes_its_part_of_a_batch_along() -> None:
    """The rows of its chunk do not run, and are not answered here."""
    world = world_of(policy=BatchPolicy(max_rows=100, max_bytes=1 << 20, linger=1.0))
    world.broker.append(*[record(at, at) for at in range(3)])
    world.broker.append(*[record(at, at, partition=P1) for at in range(3)])
    world.turn_for(0.1)

    world.source.revoke(P1)
    world.turn_for(2.0)

    assert [batch.rows for batch in world.lanes.ran] == [3]
    assert world.answered() == names(*range(3))


def test_when_transactions_fail_in_a_row_a_chunk_is_taken_apart() -> None:
    """Then each transaction holds one record's answer, which shows the one that cannot be committed."""
    world = world_of(exactly_once=True, conduct=CONDUCT)
    world.broker.append(*[record(at, at) for at in range(4)])
    fates = [TransactionFate(is_committed=False, failure="refused")] * PATIENCE_WITH_MANY
    world.transactions.fate = lambda: fates.pop() if fates else TransactionFate()

    world.turn_for(20.0)

    sizes = [len(messages) for messages, _ in world.transactions.commits]
    assert sizes == [4] * PATIENCE_WITH_MANY + [1, 2, 1]
    assert world.broker.committed == {P0: 4}

"""Records that travel as one run through the whole loop, until one of them is odd."""

from __future__ import annotations

import math

import pytest
from worker.core.runs import Run

from tests.builders import CONDUCT, NONSENSE, P0, P1, POISON, POLICY, SHORT, World, floats, record
from tests.fakes import TransactionFate
from worker.core.batching.batcher import BatchPolicy
from worker.core.records import ClosedBy
from worker.delivery.exactly_once import PATIENCE_WITH_MANY

ROWS = POLICY.max_rows


def world_of(**fields: object) -> World:
    return World(joins=True, **fields).start(P0, P1)  # type: ignore[arg-type]


def names(*offsets: int) -> list[str]:
    return [f"requests/0/{offset}" for offset in offsets]


def test_neighbours_are_one_request_to_the_lanes() -> None:
    """Each is answered, in order, and the commit goes past the last one."""
    world = world_of()
    world.broker.append(*[record(at, at) for at in range(ROWS)])

    world.turn_for(0.5)

    (batch,) = world.lanes.ran
    (run,) = batch.requests
    assert isinstance(run, Run)
    assert (batch.rows, len(run.records)) == (ROWS, ROWS)
    assert world.answered() == names(*range(ROWS))
    assert world.broker.committed == {P0: ROWS}


def test_a_run_is_cut_where_a_batch_is_full() -> None:
    """No batch goes half empty because the rest of a run would not fit."""
    world = world_of(chunk=100)
    world.broker.append(*[record(at, at) for at in range(ROWS + 3)])
    world.broker.append(*[record(at, at, partition=P1) for at in range(2 * ROWS - 3)])

    world.turn_for(0.5)

    assert [batch.rows for batch in world.lanes.ran] == [ROWS] * 3
    assert {batch.closed_by for batch in world.lanes.ran} == {ClosedBy.SIZE}
    assert world.broker.committed == {P0: ROWS + 3, P1: 2 * ROWS - 3}


def test_a_run_is_cut_where_a_batch_has_its_bytes() -> None:
    """Three records of four bytes fit into fourteen bytes."""
    world = world_of(policy=BatchPolicy(max_rows=100, max_bytes=14, linger=0.0))
    world.broker.append(*[record(at, at) for at in range(7)])

    world.turn_for(0.5)

    assert [batch.rows for batch in world.lanes.ran] == [3, 3, 1]
    assert world.answered() == names(*range(7))


def test_a_record_larger_than_a_batch_is_cut_when_it_is_alone() -> None:
    """A run of such records is taken one by one."""
    world = world_of(policy=BatchPolicy(max_rows=100, max_bytes=3, linger=0.0))
    world.broker.append(*[record(at, at) for at in range(3)])

    world.turn_for(0.5)

    assert world.answered() == names(*range(3))


@pytest.mark.parametrize("rows", [ROWS, ROWS + 1, 3 * ROWS])
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_records_of_more_rows_than_a_batch_are_cut_side_by_side(rows: int, timeout: float | None) -> None:
    """They come as one run and go as pieces of single requests, since a run itself cannot be cut."""
    world = world_of(chunk=100)
    world.broker.append(*[record(at, *[at] * rows, timeout=timeout) for at in range(6)])

    world.turn_for(1.0)

    assert max(batch.rows for batch in world.lanes.ran) == ROWS
    assert world.answered("ok") == names(*range(6))
    assert world.broker.committed == {P0: 6}


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("bad", [POISON, SHORT, NONSENSE, math.nan])
def test_one_bad_request_costs_its_run_nothing(bad: float, exactly_once: bool) -> None:  # noqa: FBT001  # a parameter
    """Whatever is wrong with one row, the other records of its run get their results, in order."""
    world = world_of(exactly_once=exactly_once)
    world.broker.append(*[record(at, bad if at == 2 else at) for at in range(8)])

    world.turn_for(0.5)

    assert world.answered() == names(*range(8))
    assert world.answered("error") == names(2)
    assert [letter.value for letter in world.broker.answers if letter.topic == "dead-letters"] == [floats(bad)]
    assert world.broker.committed == {P0: 8}
    assert world.ledger.records == 0


def test_a_partition_that_leaves_takes_its_part_of_a_batch_along() -> None:
    """The rows of its run do not run, and are not answered here."""
    world = world_of(policy=BatchPolicy(max_rows=100, max_bytes=1 << 20, linger=1.0))
    world.broker.append(*[record(at, at) for at in range(3)])
    world.broker.append(*[record(at, at, partition=P1) for at in range(3)])
    world.turn_for(0.1)

    world.source.revoke(P1)
    world.turn_for(2.0)

    assert [batch.rows for batch in world.lanes.ran] == [3]
    assert world.answered() == names(*range(3))


def test_when_transactions_fail_in_a_row_a_run_is_taken_apart() -> None:
    """Then each transaction holds one record's answer, which shows the one that cannot be committed."""
    world = world_of(exactly_once=True, conduct=CONDUCT)
    world.broker.append(*[record(at, at) for at in range(4)])
    fates = [TransactionFate(is_committed=False, failure="refused")] * PATIENCE_WITH_MANY
    world.transactions.fate = lambda: fates.pop() if fates else TransactionFate()

    world.turn_for(20.0)

    sizes = [len(messages) for messages, _ in world.transactions.commits]
    assert sizes == [4] * PATIENCE_WITH_MANY + [1, 2, 1]
    assert world.broker.committed == {P0: 4}

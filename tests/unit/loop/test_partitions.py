"""Partitions come and go: work of a revoked one is finished first, work of a lost one is dropped."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders import BOUNDS, CONDUCT, POISON, World
from tests.chunks import P0, P1, record
from tests.fakes import TransactionFate
from worker.core.batching.back_pressure import RESERVE
from worker.core.failures import ModelBroken

FAR = 1e9


def world_of(**fields: object) -> World:
    return World(**fields).start(P0, P1)  # type: ignore[arg-type]


def ran(world: World) -> list[str]:
    return [record.source for batch in world.lanes.ran for chunk in batch.chunks for record in chunk.records]


def test_what_runs_is_answered_and_committed_before_the_partition_leaves() -> None:
    """A revoke repeats no request that was begun."""
    world = world_of()
    world.lanes.seconds = lambda: 0.5
    world.broker.append(*[record(at) for at in range(4)])
    world.turn(2)

    world.source.revoke(P0)
    world.turn()

    assert world.answered() == [f"requests/0/{at}" for at in range(4)]
    assert world.broker.committed == {P0: 4}
    [(_, seconds, unsettled)] = world.events.revocations
    assert unsettled == 0
    assert seconds == pytest.approx(0.5, abs=0.1)


def test_what_waits_is_left_to_the_next_owner() -> None:
    """Rows that no lane has begun are dropped; rows of other partitions stay."""
    world = world_of()
    world.lanes.seconds = lambda: 0.2
    world.broker.append(*[record(at) for at in range(4)])
    world.turn()
    world.broker.append(record(4), record(0, partition=P1))
    world.turn()

    world.source.revoke(P0)
    world.turn_for(1.0)

    assert world.broker.committed == {P0: 4, P1: 1}
    assert world.answered()[-1] == "requests/1/0"
    assert world.events.revocations[0][2] == 1
    assert ran(world) == ["requests/0/0", "requests/0/1", "requests/0/2", "requests/0/3", "requests/1/0"]


def test_a_revoke_waits_for_a_bisect() -> None:
    """The halves of a failed batch count as running: good neighbours are answered before the hand-over."""
    world = world_of()
    world.broker.append(*[record(at, POISON if at == 2 else at) for at in range(4)])
    world.turn(1)

    world.source.revoke(P0)
    world.turn()

    assert world.answered() == [f"requests/0/{at}" for at in range(4)]
    assert world.broker.committed == {P0: 4}


def test_a_device_found_dead_during_a_revoke_stops_the_worker() -> None:
    """The verdict leaves through the poll that ran the callback, and no request that failed is committed."""
    world = world_of()
    world.broker.append(*[record(at) for at in range(64)])
    world.turn(1)
    world.lanes.is_broken = True

    world.source.revoke(P0)
    with pytest.raises(ModelBroken):
        world.worker.run()

    assert world.answered() == []
    assert world.source.commits == []


def test_a_revoke_gives_up_at_its_deadline() -> None:
    """The next owner answers a run that outlasts the budget; here it finds no line when it ends."""
    world = world_of(conduct=dataclasses.replace(CONDUCT, revoke_timeout=1.0))
    world.lanes.seconds = lambda: 5.0
    world.broker.append(*[record(at) for at in range(4)])
    world.turn(2)

    world.source.revoke(P0)
    world.turn()
    [(_, seconds, unsettled)] = world.events.revocations
    assert seconds == pytest.approx(1.0, abs=0.1)
    assert unsettled == 4
    world.turn_for(10.0)

    assert world.answered() == []
    assert world.broker.committed == {}


def test_a_revoke_late_in_a_drain_ends_with_the_drain() -> None:
    """The budget of a revoke is no reason to stay longer than the drain allows."""
    world = world_of(conduct=dataclasses.replace(CONDUCT, revoke_timeout=10.0, drain_timeout=1.0))
    world.lanes.seconds = lambda: 50.0
    world.broker.append(*[record(at) for at in range(4)])
    world.turn(2)
    world.signals.stop_asked = True

    world.source.revoke(P0)
    left = world.worker.run()

    [(_, seconds, unsettled)] = world.events.revocations
    assert seconds == pytest.approx(1.0, abs=0.1)
    assert left == unsettled == 4


def test_a_lost_partition_is_let_go_without_a_commit() -> None:
    """A lost partition belongs to another member: the worker waits for nothing and commits nothing."""
    world = world_of()
    world.sink.delay = lambda _: 0.1
    world.broker.append(*[record(at) for at in range(4)])
    world.turn_for(0.05)

    world.source.lose(P0)
    world.turn_for(1.0)

    assert world.source.commits == []
    assert (world.events.counted["lost"], world.events.counted["lost unsettled"]) == (1, 4)
    assert world.ledger.records == 0


def test_a_rejection_for_a_lost_partition_is_dropped() -> None:
    """It is neither sent nor counted: the next owner rejects the record, and counts that."""
    world = world_of()
    world.lanes.seconds = lambda: 0.1
    world.broker.append(record(0, POISON), record(0, partition=P1))
    world.turn_for(0.05)
    assert world.lanes.in_flight

    world.source.lose(P0)
    world.turn_for(1.0)

    assert world.events.rejections == []
    assert world.answered("ok") == ["requests/1/0"]


def test_pieces_of_a_cut_request_are_dropped_with_their_partition() -> None:
    """Some pieces ran, others waited: no half answer leaves, and the next owner begins again."""
    world = world_of(conduct=dataclasses.replace(CONDUCT, inflight_batches=1))
    world.lanes.seconds = lambda: 0.1
    world.broker.append(record(0, *range(10)))
    world.turn(1)
    assert world.lanes.in_flight == 1

    world.source.revoke(P0)
    world.source.assign(P0)
    world.turn_for(1.0)

    assert world.answered() == ["requests/0/0"]
    assert world.events.revocations[0][2] == 1


def test_fetching_stays_paused_through_a_rebalance() -> None:
    """Partitions assigned to a full worker wait until there is room, and flow then."""
    world = World(bounds=dataclasses.replace(BOUNDS, records=4)).start(P0)
    world.sink.delay = lambda _: 20.0
    world.broker.append(*[record(at) for at in range(4 + 2 * RESERVE)], record(0, partition=P1))
    world.turn_for(6.0)
    assert world.events.pauses == [True]
    assert world.ledger.records == 4 + RESERVE

    world.source.assign(P1)
    world.turn_for(3.0)
    assert world.ledger.records == 4 + RESERVE

    world.sink.delay = lambda _: 0.01
    world.turn_for(40.0)
    assert world.events.pauses[:2] == [True, False]
    assert "requests/1/0" in world.answered()


def test_a_partition_taken_away_makes_room() -> None:
    """Its records no longer count, so fetching resumes for the others."""
    world = World(bounds=dataclasses.replace(BOUNDS, records=4)).start(P0)
    world.sink.delay = lambda _: FAR
    world.broker.append(*[record(at) for at in range(4 + 2 * RESERVE)])
    world.turn_for(6.0)
    assert world.source.is_paused

    world.source.lose(P0)
    world.turn_for(0.2)

    assert world.events.pauses == [True, False]
    assert not world.source.is_paused


def test_a_partition_that_comes_back_waits_for_the_transaction_that_it_left_in() -> None:
    """It is lost and assigned again while its transaction ends, and nothing is answered twice."""
    world = world_of(exactly_once=True)
    world.transactions.fate = lambda: TransactionFate(heard_after=1.0)
    world.broker.append(*[record(at) for at in range(4)])
    world.turn_until(lambda: world.transactions.is_ending)

    world.source.lose(P0)
    world.source.assign(P0)
    world.transactions.fate = TransactionFate
    world.turn_for(3.0)

    assert len(world.answered()) == len(set(world.answered())) == 4
    assert world.broker.committed == {P0: 4}

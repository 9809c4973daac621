"""Turns one after another: records taken, batches handed out, answers sent and recorded, and how long each may wait."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders import BOUNDS, CONDUCT, POISON, POLICY, World, names
from tests.chunks import P0, P1, record
from worker.core.batching.back_pressure import RESERVE
from worker.core.ordering.order_by_key import Order
from worker.core.records import ClosedBy
from worker.loop.conduct import BACKLOG_SLICE, LANE_SLICE, POLL_SLICE, SHORTEST_WAIT
from worker.loop.stateless import Stateless
from worker.loop.worker import LOOK_AGAIN_AFTER, REPORT_WAIT

FAR = 1e9


def world_of(**fields: object) -> World:
    return World(**fields).start()  # type: ignore[arg-type]


def test_a_full_batch_runs_at_once() -> None:
    """Rows that fill a batch do not wait."""
    world = world_of()
    world.broker.append(*[record(at) for at in range(4)])

    world.turn_for(0.05)

    assert world.answered() == names(0, 1, 2, 3)
    assert [(b.rows, b.closed_by) for b, _ in world.events.closed] == [(4, ClosedBy.SIZE)]


def test_a_lone_record_waits_for_the_linger_and_no_longer() -> None:
    """The linger counts from the record's arrival, to the millisecond."""
    world = world_of(policy=dataclasses.replace(POLICY, linger=0.03))
    world.turn()
    world.broker.append(record(0))

    world.turn_for(0.2)

    [(batch, waited)] = world.events.closed
    assert batch.closed_by is ClosedBy.LINGER
    assert waited == pytest.approx(0.03, abs=SHORTEST_WAIT)


def test_a_due_batch_goes_on_filling_while_no_lane_is_free() -> None:
    """A batch that is due behind a busy lane fills up until the lane is free."""
    world = world_of()
    world.lanes.seconds = lambda: 0.1
    world.broker.append(record(0))
    world.turn_for(0.02)
    world.broker.append(record(1))
    world.turn_for(0.05)
    world.broker.append(record(2))

    world.turn_for(0.3)

    assert [batch.rows for batch, _ in world.events.closed] == [1, 2]


def test_a_poll_beside_a_run_brings_no_more_than_the_lanes_hold() -> None:
    """Otherwise a lane that finishes would wait until all of it is read. While no lane runs, nothing waits."""
    world = world_of(conduct=dataclasses.replace(CONDUCT, polled_beside_runs=3))
    world.lanes.seconds = lambda: 0.1
    world.broker.append(record(0))
    world.turn_for(0.05)
    beside_a_run = world.source.polls[-1]
    world.turn_for(0.2)

    assert beside_a_run == (3, 0.0)
    assert world.source.polls[-1][0] == BOUNDS.records


def test_a_full_batch_is_stacked_ahead_of_a_busy_lane() -> None:
    """The next batch is ready when the lane is; a third one is not stacked yet."""
    world = world_of()
    world.lanes.seconds = lambda: 10.0
    world.broker.append(*[record(at) for at in range(12)])

    world.turn(5)

    assert world.lanes.in_flight == 2


def test_an_idle_worker_sleeps_in_the_poll() -> None:
    """With nothing to do, each turn is one poll of a tenth of a second."""
    world = world_of()
    world.turn()
    world.source.polls.clear()

    world.turn(3)

    assert [timeout for _, timeout in world.source.polls] == [POLL_SLICE] * 3


@pytest.mark.parametrize(("left", "waits"), [(0.02, 0.02), (0.0003, SHORTEST_WAIT)])
def test_the_poll_waits_until_something_falls_due(left: float, waits: float) -> None:
    """It waits at least a millisecond: the client would not wait for less, and the loop would spin."""
    world = world_of(policy=dataclasses.replace(POLICY, linger=0.05))
    world.turn()
    world.broker.append(record(0))
    world.turn()

    world.clock.wait(0.05 - left)
    world.turn()

    assert world.source.polls[-1][1] == pytest.approx(waits)


def test_the_poll_does_not_wait_while_a_lane_runs() -> None:
    """A finished lane cannot wake a poll, so the loop waits for the lanes."""
    world = world_of()
    world.lanes.seconds = lambda: 1.0
    world.broker.append(*[record(at) for at in range(4)])
    world.turn(2)
    world.source.polls.clear()

    world.turn(3)

    assert [timeout for _, timeout in world.source.polls] == [0.0] * 3


def test_the_poll_does_not_wait_while_the_device_is_asked() -> None:
    """The result of the warm-up batch is fetched like that of any batch."""
    world = world_of()
    world.broker.append(record(0, POISON))

    world.turn_for(0.03)

    assert world.lanes.probes == 1
    assert world.answered("error") == names(0)


def test_a_worker_that_is_behind_leaves_the_backlog_with_kafka() -> None:
    """While as many full batches wait as the lanes may hold, only the short polls still bring records."""
    world = world_of(chunk=4)
    world.lanes.seconds = lambda: 10.0
    world.broker.append(*[record(at) for at in range(100)])

    world.turn_for(1.0)

    assert world.lanes.in_flight == 2
    assert world.batcher.backlog == 2 + 2
    assert world.ledger.records <= 4 * 4 + 11
    assert not world.source.is_paused


def test_large_records_are_asked_for_a_few_at_a_time() -> None:
    """The size of the last records decides; otherwise each poll might bring far more than the bound."""
    world = world_of(bounds=dataclasses.replace(BOUNDS, rows=100_000, size=8_000))
    world.broker.append(*[record(at, *[1.0] * 250) for at in range(40)])  # a thousand bytes each

    world.turn_for(20.0)

    assert len(world.answered("ok")) == 40
    first, *later = [asked for asked, _ in world.source.polls]
    assert first == 16  # the size of a record is not known yet
    assert max(later) == 8


def test_at_the_bound_nothing_waits_for_company() -> None:
    """When no more may be taken, the open batch goes at once, however long the linger is."""
    world = world_of(bounds=dataclasses.replace(BOUNDS, records=3), policy=dataclasses.replace(POLICY, linger=50.0))
    world.broker.append(*[record(at) for at in range(6)])

    world.turn_for(0.5)

    assert world.answered() == names(*range(6))
    assert {batch.closed_by for batch, _ in world.events.closed} == {ClosedBy.PRESSURE}


def test_at_the_bound_kafka_is_glanced_at_ten_times_a_second() -> None:
    """Callbacks must run, but each of these polls may bring a record that there is no room for."""
    world = world_of(bounds=dataclasses.replace(BOUNDS, records=4))
    world.lanes.seconds = lambda: 50.0
    world.broker.append(*[record(at) for at in range(20)])
    world.turn(2)
    world.source.polls.clear()

    world.turn_for(1.0)

    assert world.source.polls == [(1, 0.0)] * len(world.source.polls)
    assert 9 <= len(world.source.polls) <= 11
    assert world.ledger.records <= 4 + 11


def test_a_worker_that_waits_for_the_broker_does_not_spin() -> None:
    """Full of sent answers and with idle lanes, the turn waits for delivery reports."""
    world = world_of(bounds=dataclasses.replace(BOUNDS, records=4))
    world.sink.delay = lambda _: FAR
    world.broker.append(*[record(at) for at in range(4)])
    world.turn_for(0.05)

    began = world.clock.now
    world.turn(10)

    assert world.clock.now - began == pytest.approx(10 * REPORT_WAIT)


def test_a_worker_that_pauses_below_the_bound_does_not_spin() -> None:
    """Between full and half free nothing is taken either: the turn waits for the reports that make room."""
    world = world_of(bounds=dataclasses.replace(BOUNDS, records=10))
    world.sink.delay = lambda _: 8.0 if len(world.sink.sent) <= 33 else FAR
    world.broker.append(*[record(at) for at in range(10 + RESERVE)])
    world.turn_for(13.0)
    assert world.ledger.records == 9

    began = world.clock.now
    world.turn(10)

    assert world.source.is_paused
    assert world.clock.now - began == pytest.approx(10 * REPORT_WAIT)


def test_answers_wait_for_company_only_while_more_are_coming() -> None:
    """The producer is pushed when the lanes are idle and no full batch waits, and only if answers were sent."""
    world = world_of()
    world.broker.append(*[record(at) for at in range(12)])

    world.turn_for(1.0)

    assert world.answered() == names(*range(12))
    assert world.sink.pushed == [12]


def test_a_worker_with_enough_ahead_of_its_lanes_waits_for_them_longer() -> None:
    """It would take no new records. A worker that still has room looks at the topics each millisecond."""
    world = world_of(chunk=4)
    world.lanes.seconds = lambda: 10.0
    world.broker.append(*[record(at) for at in range(8)])
    world.turn(5)
    before = world.clock.now
    world.turn(5)
    with_room = world.clock.now - before
    world.broker.append(*[record(8 + at) for at in range(8)])
    world.turn(3)
    before = world.clock.now

    world.turn(5)

    assert with_room == pytest.approx(5 * LANE_SLICE)
    assert world.clock.now - before == pytest.approx(5 * BACKLOG_SLICE)


def test_a_lane_ends_the_wait_of_a_worker_with_a_backlog() -> None:
    """The lane's next batch is handed out at once, not at the end of the slice."""
    world = world_of(chunk=4)
    world.lanes.seconds = lambda: BACKLOG_SLICE * 0.25
    world.broker.append(*[record(at) for at in range(40)])

    world.turn_for(BACKLOG_SLICE * 3)

    assert len(world.answered()) == 40


def test_a_worker_that_is_behind_lets_its_answers_wait_for_company() -> None:
    """While each poll brings all it may, more answers are coming, even if the lanes are idle for an instant."""
    world = world_of(chunk=4)
    world.lanes.seconds = lambda: 0.0
    world.broker.append(*[record(at) for at in range(12)])

    world.turn(3)
    assert world.sink.pushed == []

    world.turn_for(1.0)
    assert world.sink.pushed == [12]


def test_what_a_poll_leaves_over_waits_for_the_next_poll() -> None:
    """This holds even if the full batch before runs for long on the loop's own thread."""
    world = world_of(chunk=5, policy=dataclasses.replace(POLICY, linger=0.0))

    def run_on_the_loop() -> float:
        world.clock.now += 0.002
        return 0.0

    world.lanes.seconds = run_on_the_loop
    world.broker.append(*[record(at) for at in range(12)])

    world.turn_for(1.0)

    assert [batch.rows for batch, _ in world.events.closed] == [4, 4, 4]


@pytest.mark.parametrize(
    ("exactly_once", "order"), [(False, "partition"), (False, "key"), (False, "none"), (True, "partition")]
)
def test_commits_go_past_markers_of_transactions(exactly_once: bool, order: Order) -> None:  # noqa: FBT001
    """Markers may follow the last request, or stand alone. They get no answer, and are not counted."""
    world = world_of(exactly_once=exactly_once, order=order)
    world.broker.append(*[record(at) for at in range(4)])
    world.broker.markers = {P0: {4, 5}, P1: {0}}

    world.turn_for(2 * LOOK_AGAIN_AFTER)

    assert world.broker.committed == {P0: 6, P1: 1}
    assert world.answered() == names(0, 1, 2, 3)
    assert len(world.events.settled_at) == 4
    assert world.delivery.is_idle


def test_no_commit_goes_past_a_request_that_is_owed_an_answer() -> None:
    """It does not matter how far the source has come."""
    world = world_of()
    world.lanes.seconds = lambda: 5 * LOOK_AGAIN_AFTER
    world.broker.append(*[record(at) for at in range(4)])
    world.broker.markers = {P0: {4}}

    world.turn_for(3 * LOOK_AGAIN_AFTER)
    assert world.broker.committed.get(P0, 0) == 0
    world.turn_for(4 * LOOK_AGAIN_AFTER)

    assert world.broker.committed == {P0: 5}


def test_what_is_settled_is_asked_about_once_a_second() -> None:
    """If no marker was passed, nothing is committed again."""
    world = world_of()
    world.broker.append(record(0))

    world.turn_for(5 * LOOK_AGAIN_AFTER)

    assert world.source.commits == [{P0: 1}]


def test_a_model_without_state_has_nothing_to_keep() -> None:
    """So no step of a checkpoint is taken for it."""
    assert Stateless().kept is None

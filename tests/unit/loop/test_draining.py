"""SIGTERM: the worker finishes what it holds, commits it, and leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from tests.builders import CONDUCT, POISON, POLICY, World
from tests.chunks import P0, P1, record
from tests.fakes import CommitFate
from worker.core.chunk import Chunk, Reading
from worker.core.failures import DeadlineMissed, KafkaFatal, ModelBroken
from worker.core.ordering.order_by_key import Order
from worker.core.records import ClosedBy, Record


def world_of(**fields: object) -> World:
    return World(**fields).start(P0, P1)  # type: ignore[arg-type]


def short_of_time(**fields: object) -> World:
    """A worker that needs a second for each batch, and must stop half a second from now, with six seconds to finish."""
    world = world_of(conduct=dataclasses.replace(CONDUCT, drain_timeout=6.0), **fields)
    world.lanes.seconds = lambda: 1.0
    stop_at(world, 0.5)
    return world


def stop_at(world: World, seconds: float) -> None:
    world.clock.at(world.clock.now + seconds, lambda: setattr(world.signals, "stop_asked", True))


def wide(chunk: Chunk) -> Chunk:
    """The chunk's records as one row of all their values each, in a bucket of its own."""
    return dataclasses.replace(chunk, rows=[1] * len(chunk), shapes=[((rows,),) for rows in chunk.rows])


def test_a_worker_that_hangs_leaves_without_a_commit() -> None:
    """Another thread leaves the group, so it touches nothing that the loop holds."""
    world = world_of()
    world.broker.append(record(0))
    world.worker.turn()
    before = dict(world.broker.committed)

    world.worker.leave()

    assert world.source.is_closed
    assert world.broker.committed == before


def test_a_worker_told_to_stop_answers_and_commits_what_it_took() -> None:
    """Waiting, running and sent requests are all committed before the worker leaves the group."""
    world = world_of(policy=dataclasses.replace(POLICY, linger=50.0))
    world.sink.delay = lambda _: 0.5
    world.lanes.seconds = lambda: 0.3
    world.broker.append(*[record(at) for at in range(6)], record(0, POISON, partition=P1))
    stop_at(world, 0.2)

    world.worker.run()

    assert world.broker.committed == {P0: 6, P1: 1}
    assert world.answered("error") == ["requests/1/0"]
    assert world.events.closed[-1][0].closed_by is ClosedBy.DRAIN
    assert world.source.is_closed
    assert world.clock.now < 1000.0 + 3.0


def test_a_worker_told_to_stop_before_it_began_does_not_join_its_group() -> None:
    """Other members would give up partitions for it, and take them again."""
    world = World()
    world.source.assign(P0)
    world.broker.append(record(0))
    world.signals.stop_asked = True

    world.worker.run()

    assert not world.source.is_subscribed
    assert world.source.is_closed
    assert world.answered() == []


def test_a_draining_worker_does_not_wait_for_the_next_commit() -> None:
    """The last commit goes as soon as there is something to commit, however long the interval is."""
    world = world_of(commit_interval=15.0)
    world.broker.append(record(0))
    stop_at(world, 0.1)

    world.worker.run()

    assert world.broker.committed == {P0: 1}
    assert world.clock.now < 1000.0 + 0.5


def test_a_draining_worker_takes_nothing_more() -> None:
    """A record that still comes belongs to the next owner: it is not answered, and no commit passes it."""
    world = world_of()
    world.lanes.seconds = lambda: 1.0
    world.broker.append(record(0))
    stop_at(world, 0.2)
    world.source.pause = lambda: None  # type: ignore[method-assign]  # the client still has some in its queue
    world.clock.at(world.clock.now + 0.5, lambda: world.broker.append(record(1), record(2)))

    world.worker.run()

    assert world.answered() == ["requests/0/0"]
    assert world.broker.committed == {P0: 1}


def test_a_drain_asks_the_device_before_it_blames_the_last_request() -> None:
    """The drain waits for a probe under way, then answers the request that failed."""
    world = world_of()
    world.lanes.seconds = lambda: 0.5
    world.broker.append(record(0, POISON))
    stop_at(world, 0.6)

    world.worker.run()

    assert world.events.probes == [None]
    assert world.broker.committed == {P0: 1}


def test_a_drain_keeps_trying_to_commit() -> None:
    """Refused commits are repeated until one is taken."""
    world = world_of()
    fates = iter([CommitFate(is_taken=False)] * 5)
    world.source.commit_fate = lambda: next(fates, CommitFate())
    world.broker.append(record(0))
    stop_at(world, 0.1)

    world.worker.run()

    assert world.broker.committed == {P0: 1}


def test_a_drain_that_cannot_end_ends_at_its_deadline() -> None:
    """Records without the broker's acknowledgement are not committed, and the exit says so."""
    world = world_of(conduct=dataclasses.replace(CONDUCT, drain_timeout=3.0))
    world.sink.delay = lambda _: 1e9
    world.broker.append(record(0))
    stop_at(world, 0.1)

    with pytest.raises(DeadlineMissed, match="1 records taken"):
        world.worker.run()

    assert world.clock.now == pytest.approx(1003.1, abs=0.3)
    assert world.broker.committed == {}
    assert world.source.is_closed


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at_least_once", "exactly_once"])
def test_a_drain_leaves_what_it_cannot_finish_to_the_next_owner(*, exactly_once: bool) -> None:
    """After half of its time a drain of many small, slow batches finishes only the running ones, and ends well."""
    world = short_of_time(exactly_once=exactly_once, policy=dataclasses.replace(POLICY, max_rows=1))
    world.broker.append(*[record(at) for at in range(20)])

    left = world.worker.run()

    answered = len(world.answered())
    assert 3 <= answered <= 6
    assert left == 20 - answered
    assert world.broker.committed == {P0: answered}
    assert world.clock.now < 1000.0 + 5.5
    assert world.events.revocations[0][2] == 20 - answered


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at_least_once", "exactly_once"])
def test_a_drain_counts_its_time_from_a_stop_in_the_middle_of_a_revoke(*, exactly_once: bool) -> None:
    """Four batches fit into a drain, and two ran for the revoke: the worker exits cleanly and in time."""
    conduct = dataclasses.replace(CONDUCT, drain_timeout=20.0, revoke_timeout=10.0)
    world = world_of(exactly_once=exactly_once, policy=dataclasses.replace(POLICY, max_rows=1), conduct=conduct)
    world.lanes.seconds = lambda: 4.9
    world.broker.append(record(0), record(1))
    world.clock.at(1000.3, lambda: world.broker.append(*[record(at, partition=P1) for at in range(30)]))
    world.clock.at(1001.0, lambda: world.source.revoke(P0))
    stop_at(world, 1.1)

    world.worker.run()

    assert world.clock.now < 1001.1 + 20.0
    assert world.broker.committed == {P0: 2, P1: 2}


def test_a_stop_in_the_middle_of_a_revoke_is_kept_by_the_drains_deadline() -> None:
    """It waits no longer for a batch than a drain would, and leaves the group by itself."""
    world = world_of(conduct=dataclasses.replace(CONDUCT, drain_timeout=1.0, revoke_timeout=10.0))
    world.lanes.seconds = lambda: 8.0
    world.broker.append(record(0), record(0, partition=P1))
    world.clock.at(1001.0, lambda: world.source.revoke(P0))
    stop_at(world, 2.0)

    with pytest.raises(DeadlineMissed):
        world.worker.run()

    assert world.clock.now == pytest.approx(1003.0, abs=0.3)
    assert world.source.is_closed


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_a_drain_that_leaves_some_begins_with_the_oldest(order: Order) -> None:
    """Nothing behind a request that never ran can be committed, even if that is alone in its bucket."""
    world = short_of_time(order=order, policy=dataclasses.replace(POLICY, linger=50.0))
    read = world.codec.read

    def first_wide(records: Sequence[Record]) -> Reading:
        chunks, rejections, _ = read(records)
        return Reading([wide(chunk) if chunk.records[0].offset == 0 else chunk for chunk in chunks], rejections)

    world.codec.read = first_wide  # type: ignore[method-assign]
    world.broker.append(record(0, 1.0, 2.0), *[record(at) for at in range(1, 41)])

    world.worker.run()

    assert 10 < len(world.answered()) < 30
    assert world.broker.committed == {P0: len(world.answered())}


def test_a_second_signal_ends_the_drain_at_once() -> None:
    """A user who asks twice does not want to wait."""
    world = world_of()
    world.sink.delay = lambda _: 1e9
    world.broker.append(record(0))
    stop_at(world, 0.1)
    world.clock.at(world.clock.now + 0.5, lambda: setattr(world.signals, "hurry_asked", True))

    with pytest.raises(DeadlineMissed):
        world.worker.run()

    assert world.clock.now < 1001.0


def test_a_partition_revoked_during_the_drain_is_not_waited_for() -> None:
    """Its waiting records belong to its next owner. Finished ones are committed, and the drain goes on."""
    world = world_of(conduct=dataclasses.replace(CONDUCT, inflight_batches=1))
    world.lanes.seconds = lambda: 0.4
    world.broker.append(*[record(at) for at in range(12)], record(0, partition=P1))
    stop_at(world, 0.2)
    world.clock.at(world.clock.now + 0.3, lambda: world.source.revoke(P0))

    world.worker.run()

    assert world.broker.committed[P1] == 1
    assert world.answered().count("requests/0/0") == 1
    assert world.broker.committed[P0] == len([name for name in world.answered() if name.startswith("requests/0/")])


@pytest.mark.parametrize("fault", ["device", "broker"])
def test_a_worker_that_must_stop_commits_nothing_on_the_way_out(fault: str) -> None:
    """Leaving the group calls revoke once more; a worker that gave up only forgets its partitions then."""
    world = world_of()
    world.broker.append(*[record(at) for at in range(4)])
    if fault == "device":
        world.lanes.is_broken = True
    else:
        world.sink.refusal = "not authorised"

    with pytest.raises((ModelBroken, KafkaFatal)):
        world.worker.run()

    assert world.source.is_closed
    assert world.source.commits == []
    assert world.ledger.records == 0

"""Requests that end the process of the model: each record that was in it runs alone, and the guilty one is answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import CONDUCT, ENDED, HANGING, KILLER, POLICY, World, names
from tests.chunks import P0, P1, floats, offsets, record
from tests.fakes import CHANGELOG
from worker.core.failures import Code
from worker.loop.conduct import Conduct

both_guarantees = pytest.mark.parametrize("exactly_once", [False, True], ids=["at_least_once", "exactly_once"])
TWO_LANES = Conduct(lanes=2, inflight_batches=3)


def world_of(**fields: object) -> World:
    return World(**fields).start(P0)  # type: ignore[arg-type]


def ran(world: World) -> list[list[int]]:
    """The offsets in each batch, in the order of their beginning."""
    return [offsets(batch.chunks) for batch, _ in world.lanes.began]


@both_guarantees
@pytest.mark.parametrize("bad", [KILLER, HANGING])
@pytest.mark.parametrize("joins", [False, True])
def test_a_record_that_ends_the_host_costs_its_neighbours_nothing(
    *, exactly_once: bool, bad: float, joins: bool
) -> None:
    """It ends a second host while it runs alone; then it is answered and dead-lettered, in its turn."""
    world = world_of(exactly_once=exactly_once, joins=joins)
    world.broker.append(*[record(at, bad if at == 2 else 1.0) for at in range(8)])

    world.turn_for(5.0)

    assert ran(world) == [[0, 1, 2, 3], [0], [4, 5, 6, 7], [1], [2], [3]]
    assert world.lanes.hosts == 3
    assert world.answered() == names(*range(8))
    assert world.answered("error") == names(2)
    [rejection] = world.events.rejections
    assert rejection.code is Code.INTERNAL
    assert rejection.message == f"the model failed on this record: {ENDED}"
    assert [message.topic for message in world.broker.answers].count("dead-letters") == 1
    assert world.broker.committed == {P0: 8}


def test_what_ran_in_another_lane_is_not_blamed() -> None:
    """A record that was the only one of its batch runs again, alone, too."""
    world = world_of(conduct=TWO_LANES, policy=replace(POLICY, max_rows=1))
    world.broker.append(record(0), record(1, KILLER), record(2))

    world.turn_for(5.0)

    assert world.answered("ok") == names(0, 2)
    assert world.answered("error") == names(1)


def test_killers_alone_are_answered_when_the_next_host_has_shown_that_the_device_works() -> None:
    """Its warm-up batch is the proof, because no other request is there."""
    world = world_of()
    world.broker.append(record(0, KILLER))

    world.turn_for(5.0)

    assert world.answered("error") == names(0)
    assert world.events.probes == [None]


def test_a_record_of_several_rows_is_one_record() -> None:
    """Its rows stay together: it is not known which of them ends the host."""
    world = world_of()
    world.broker.append(record(0), record(1, value=floats(1.0, KILLER)), record(2))

    world.turn_for(5.0)

    assert world.answered("ok") == names(0, 2)
    assert world.answered("error") == names(1)


@both_guarantees
def test_a_sequence_that_ends_the_host_leaves_its_key_as_it_was(*, exactly_once: bool) -> None:
    """The next request of the key runs on the state before it."""
    world = world_of(has_state=True, exactly_once=exactly_once)
    values = [floats(1.0), floats(2.0, KILLER), floats(4.0)]
    world.broker.append(*[record(at, value=value, key=b"k") for at, value in enumerate(values)])

    world.turn_for(5.0)

    answers = {message.topic: message.value for message in world.broker.answers if message.topic != CHANGELOG}
    assert answers["responses"] == floats(5.0)
    assert world.answered("error") == names(1)


@both_guarantees
def test_a_drain_finds_the_killer(*, exactly_once: bool) -> None:
    """The records taken are answered before the worker ends."""
    world = world_of(exactly_once=exactly_once, conduct=CONDUCT)
    world.broker.append(*[record(at, KILLER if at == 1 else 1.0) for at in range(4)])
    world.turn(2)
    world.signals.stop_asked = True

    assert world.worker.run() == 0

    assert world.answered() == names(*range(4))
    assert world.answered("error") == names(1)
    assert world.broker.committed == {P0: 4}


def test_a_host_that_is_killed_again_and_again_costs_no_answer() -> None:
    """Each record of its batch runs alone, and again if the next host is killed, too."""
    world = world_of()
    for start in range(0, 40, 8):
        world.broker.append(*[record(at) for at in range(start, start + 8)])
        world.turn_until(lambda: world.lanes.in_flight)
        world.lanes.kill_host(ENDED)
        world.turn_for(0.052)
        world.lanes.kill_host(ENDED)
        world.turn_for(1.0)

    assert world.answered("ok") == names(*range(40))
    assert world.lanes.hosts == 11


def test_what_left_with_its_partition_does_not_run_again() -> None:
    """A killer among it would end another host for nothing."""
    world = World().start(P0, P1)
    world.broker.append(*[record(at, KILLER) for at in range(2)], *[record(at, partition=P1) for at in range(2)])
    world.turn_until(lambda: world.lanes.in_flight)

    world.source.lose(P0)
    world.turn_for(1.0)

    assert world.lanes.hosts == 2
    assert [len(batch) for batch in ran(world)] == [4, 1, 1]
    assert world.broker.committed == {P1: 2}

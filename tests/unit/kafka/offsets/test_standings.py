"""A group that takes long to say where it stands holds up no partition that flows."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tests.unit.kafka.scripted import P, Q, World, new_world
from worker.core.records import Partition
from worker.kafka.offsets import standings
from worker.kafka.offsets.standings import ALONE, PATIENT, QUICK, TOGETHER

Work = Callable[[], None]


class Beside(NamedTuple):
    """A world in which P flows, and what goes on beside its loop is done when a test says so."""

    world: World
    works: list[Work]

    def finish(self) -> None:
        self.works.pop()()


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Beside:
    works: list[Work] = []
    world = new_world(monkeypatch, background=works.append)
    world.client.group = {P: (3, ""), Q: (7, "")}
    world.assign(P, Q)
    assert world.brings((P, 3)) == [(P, 3)]
    world.client.is_away = True
    world.client.patience.clear()
    return Beside(world, works)


def test_the_loop_waits_briefly_and_the_answer_comes_beside_it(beside: Beside) -> None:
    """What waits for the answer is held, and the other partitions go on; nothing more is asked meanwhile."""
    world = beside.world

    assert world.brings((Q, 7), (P, 4)) == [(P, 4)]
    world.clock.now += 10.0
    assert world.brings((Q, 8), (P, 5)) == [(P, 5)]
    world.client.is_away = False
    beside.finish()

    assert world.polled_twice() == [(Q, 7), (Q, 8)]
    assert world.client.patience == [QUICK, TOGETHER]


def test_beside_the_loop_each_is_asked_about_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group tells of all that are asked about together, or of none. What it does not tell is asked for again."""
    world = new_world(monkeypatch)
    world.client.group = {P: (3, ""), Q: (7, "")}
    world.assign(P, Q)
    world.client.open = {1}

    assert world.brings((P, 3), (Q, 7)) == [(P, 3)]
    world.client.open.clear()
    world.clock.now += 1.0
    assert world.polled_twice() == [(Q, 7)]


def test_time_is_over_before_many_have_been_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come in another order the next time."""
    world = new_world(monkeypatch)
    many = [Partition("r", number) for number in range(100)]
    world.client.group = dict.fromkeys(many, (3, ""))
    world.assign(*many)
    world.client.open = set(range(98))
    monkeypatch.setattr(standings, "time", SimpleNamespace(monotonic=lambda: ALONE * len(world.client.asked)))

    world.brings(*[(partition, 3) for partition in many])
    alone = [asked for asked in world.client.asked if len(asked) == 1]

    assert len(alone) == PATIENT / ALONE
    assert world.client.patience[-1] == ALONE


def test_what_moved_on_meanwhile_does_not_hear_the_answer(beside: Beside) -> None:
    """It was true of an assignment that is over. The next one asks for itself."""
    world = beside.world
    world.brings((Q, 7))
    world.client.is_away = False
    world.will_revoke(Q)
    world.polled()
    beside.finish()  # 7
    world.client.group[Q] = (9, "")
    world.joins(Q)

    assert world.brings((Q, 9)) == [(Q, 9)]
    assert not world.client.seeks


def test_a_group_that_does_not_tell_in_the_end_is_asked_again(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    """And said to be silent. The loop does not wait for the next answer: it comes late, if at all."""
    world = beside.world

    for _ in range(2):
        world.brings((Q, 7))
        beside.finish()
        world.polled()
        world.clock.now += 1.0
    world.client.is_away = False
    world.polled()
    beside.finish()

    assert world.polled_twice()[0] == (Q, 7)
    assert world.client.patience == [QUICK, TOGETHER, TOGETHER, TOGETHER]
    assert "the group does not tell its offsets, partitions wait: 1: Local: Timed out" in caplog.text
    world.clock.now += 1.0
    world.will_revoke(Q)
    world.polled()
    world.joins(Q)
    assert world.brings((Q, 7)) == [(Q, 7)]
    assert world.client.patience[-1] == QUICK

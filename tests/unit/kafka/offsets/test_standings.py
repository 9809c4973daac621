"""A group that does not give its offsets is asked again, and a flowing partition is not held up for long."""

from __future__ import annotations

import pytest

from tests.unit.kafka.scripted import P, Q, new_world
from worker.kafka.consumer.gates import ASK_AGAIN_AFTER
from worker.kafka.offsets.standings import ANSWER_TIMEOUT


def test_what_waits_for_an_answer_is_held_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The group is asked again after a while, and the log says that partitions wait."""
    world = new_world(monkeypatch)
    world.client.group = {P: (3, ""), Q: (7, "")}
    world.assign(P, Q)
    assert world.brings((P, 3)) == [(P, 3)]
    world.client.is_away = True
    world.client.patience.clear()

    assert world.brings((Q, 7), (P, 4)) == [(P, 4)]
    assert world.brings((Q, 8), (P, 5)) == [(P, 5)]
    world.client.is_away = False
    assert world.polled() == []
    world.clock.now += ASK_AGAIN_AFTER

    assert world.polled_twice() == [(Q, 7), (Q, 8)]
    assert max(world.client.patience) <= ANSWER_TIMEOUT
    assert "the group does not tell its offsets, partitions wait: 1" in caplog.text


def test_after_a_question_in_vain_one_is_asked_about_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group answers for all partitions in a question, or for none."""
    world = new_world(monkeypatch)
    world.client.group = {P: (3, ""), Q: (7, "")}
    world.assign(P, Q)
    world.client.open = {1}

    came = world.brings((P, 3), (Q, 7))
    for _ in range(20):
        world.clock.now += ASK_AGAIN_AFTER
        came += world.polled_twice()
    assert came == [(P, 3)]
    world.client.open.clear()
    world.clock.now += ASK_AGAIN_AFTER

    assert world.polled_twice() == [(Q, 7)]

"""A group that does not give its offsets is asked again, and the partitions that flow are not held up for long."""

from __future__ import annotations

import pytest

from tests.unit.kafka.scripted import P, Q, new_world
from worker.kafka.consumer.gates import ASK_AGAIN_AFTER
from worker.kafka.offsets.standings import ANSWER_TIMEOUT


def test_what_waits_for_an_answer_is_dropped_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The group is asked again after a while, and the log says that partitions wait."""
    world = new_world(monkeypatch)
    world.client.group = {P: (3, ""), Q: (7, "")}
    world.assign(P, Q)
    assert world.brings((P, 3), (Q, 7)) == [(P, 3), (Q, 7)]
    world.client.is_away = True
    world.client.patience.clear()
    world.source.rewind([Q])

    assert world.brings((Q, 8), (P, 4)) == [(P, 4)]
    assert world.brings((Q, 9), (P, 5)) == [(P, 5)]
    world.client.is_away = False
    world.polled()
    assert not world.client.seeks
    world.clock.now += ASK_AGAIN_AFTER
    world.polled()

    assert world.client.seeks == [(1, 7)]
    assert max(world.client.patience) <= ANSWER_TIMEOUT
    assert "the group does not tell its offsets, partitions wait: 1" in caplog.text


def test_after_a_question_in_vain_one_is_asked_about_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group answers for all partitions in a question, or for none."""
    world = new_world(monkeypatch)
    world.client.group = {P: (3, ""), Q: (7, "")}
    world.assign(P, Q)
    world.brings((P, 3), (Q, 7))
    world.client.open = {1}

    world.source.rewind([P, Q])
    for _ in range(20):
        world.clock.now += ASK_AGAIN_AFTER
        world.polled()
    assert world.client.seeks == [(0, 3)]
    world.client.open.clear()
    world.clock.now += ASK_AGAIN_AFTER
    world.polled()

    assert world.client.seeks == [(0, 3), (1, 7)]

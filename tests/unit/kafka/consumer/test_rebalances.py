"""How partitions come: where the client begins to read, and how a stand-by notices that its group has it."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID

from tests.unit.kafka.scripted import P, Q, new_world
from worker.kafka.consumer.rebalances import PATIENCE

UP, AWAY = "up", "query-coord"


@pytest.mark.parametrize(
    ("reset", "place"), [("earliest", OFFSET_BEGINNING), ("latest", OFFSET_END), ("error", OFFSET_INVALID)]
)
def test_a_partition_begins_where_the_group_stands_or_as_the_policy_says(
    monkeypatch: pytest.MonkeyPatch, reset: str, place: int
) -> None:
    """The client reports the error, so that partition is left to it."""
    world = new_world(monkeypatch, auto_offset_reset=reset)
    world.client.group = {P: (5, "")}

    world.assign(P, Q)

    assert world.client.begun == [(0, 5), (1, place)]
    assert world.client.asked == [[0, 1]]


def test_what_the_group_does_not_tell_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source asks, since the client might not. No record comes meanwhile, wherever the client reads."""
    world = new_world(monkeypatch)
    world.client.is_away = True
    world.joins(P)

    assert world.brings((P, 0), (P, 1)) == []
    world.client.is_away = False
    world.client.group = {P: (5, "")}
    world.clock.now += 1.0
    world.polled()

    assert world.client.begun == [(0, OFFSET_BEGINNING)]
    assert world.client.seeks == [(0, 5)]
    assert world.brings((P, 5), (P, 6)) == [(P, 5), (P, 6)]


def test_a_client_is_not_moved_while_it_looks_up_where_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go there after all. Only a record shows that it has found its place, so the partition is not paused."""
    world = new_world(monkeypatch)
    world.client.group = {P: (5, "")}
    world.client.is_away = True
    world.joins(P)
    world.client.is_away = False
    world.clock.now += 1.0

    assert world.polled() == []
    assert not world.client.seeks
    assert not world.client.stopped
    assert world.brings((P, 0)) == []
    assert world.client.seeks == [(0, 5)]
    assert world.brings((P, 5)) == [(P, 5)]


def test_a_group_that_has_nothing_begins_where_the_client_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins at the first record, which was dropped because it came too early."""
    world = new_world(monkeypatch)
    world.client.is_away = True
    world.joins(P)
    assert world.brings((P, 3), (P, 4)) == []
    world.client.is_away = False
    world.clock.now += 1.0

    world.polled()

    assert world.client.seeks == [(0, 3)]
    assert world.brings((P, 3), (P, 4)) == [(P, 3), (P, 4)]


@pytest.mark.parametrize("reset", ["latest", "error"])
def test_where_nothing_may_come_a_group_is_left_to_the_client_in_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reset: str
) -> None:
    """Meanwhile there is no place to begin at. The log says so, in case the partition stands still."""
    world = new_world(monkeypatch, auto_offset_reset=reset)
    world.client.is_away = True
    began = world.clock.now

    world.assign(P)

    assert world.client.begun == [(0, OFFSET_INVALID)]
    assert world.clock.now - began == pytest.approx(PATIENCE[reset], abs=0.1), (
        "long enough for a coordinator to move, but not for ever"
    )
    assert "1 of 1 partitions are left to the client" in caplog.messages[0]
    assert world.brings((P, 3)) == []


def test_an_assignment_by_a_strategy_of_the_users_is_left_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The strategy may assign everything anew, which an incremental call would break."""
    world = new_world(monkeypatch, config={"partition.assignment.strategy": "range"})

    world.assign(P)

    assert not world.client.asked
    assert not world.client.begun


def test_a_stand_by_is_in_once_its_coordinator_was_up_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once may be before the first heartbeat. The worker hears it once, and again after the member was lost."""
    world, told = new_world(monkeypatch), list[object]()
    world.assignments.assigned = told.append  # type: ignore[method-assign, assignment]
    up = json.dumps({"brokers": {"a:9092/1": {"state": "UP"}}, "cgrp": {"state": "up"}})

    world.client.config["stats_cb"](up)
    assert told == []
    for _ in range(3):
        world.client.config["stats_cb"](up)
    assert told == [[]]
    world.lose(P)
    for _ in range(3):
        world.client.config["stats_cb"](up)

    assert told == [[], []]

"""Requests that were deleted before they were read are reported to the watcher once, with their number."""

from __future__ import annotations

import logging

import pytest

from tests.fakes import Onlooker
from tests.unit.kafka.scripted import P, Q, World, new_world
from worker.core.records import Partition
from worker.kafka.consumer.reports import ASK_AGAIN_AFTER


@pytest.fixture
def onlooker() -> Onlooker:
    return Onlooker()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, onlooker: Onlooker) -> World:
    return new_world(monkeypatch, onlooker)


def reset(world: World, partition: Partition, lost: int) -> None:
    """Log an offset reset in librdkafka's words."""
    said = (
        f"[thrd:main]: {partition.topic} [{partition.number}]: offset reset (at offset {lost} (leader epoch 0), broker "
        "1) to offset BEGINNING (leader epoch -1): fetch failed due to requested offset not available on the broker: "
        "Broker: Offset out of range"
    )
    world.client.logger.log(logging.WARNING, "%s [%s] %s", "OFFSET", "rdkafka#consumer-1", said)


def second_passes(world: World) -> None:
    world.clock.now += 1.0
    world.client.config["stats_cb"]("{}")


def test_each_is_told_once_with_where_its_log_begins(
    world: World, onlooker: Onlooker, caplog: pytest.LogCaptureFixture
) -> None:
    """One question covers all. A partition that is lost twice within a second counts from the first loss."""
    world.client.first = 60
    reset(world, P, 20)
    reset(world, Q, 30)
    reset(world, P, 55)

    second_passes(world)
    second_passes(world)

    assert onlooker.lost == [(P, 20, 60), (Q, 30, 60)]
    assert world.client.begins_asked == [[0, 1]]
    assert caplog.messages[0].startswith("OFFSET: r [0]: offset reset (at offset 20")


def test_what_the_broker_does_not_tell_is_asked_again(world: World, onlooker: Onlooker) -> None:
    """It is not asked every second, since the loop waits for the answer."""
    world.client.first = 60
    reset(world, P, 20)
    reset(world, Q, 30)
    world.client.is_away = True
    second_passes(world)
    world.client.is_away, world.client.leaderless = False, {1}

    second_passes(world)
    asked_at_once = list(world.client.begins_asked)
    world.clock.now += ASK_AGAIN_AFTER
    second_passes(world)
    told_first = list(onlooker.lost)
    world.client.leaderless = set()
    world.clock.now += ASK_AGAIN_AFTER
    second_passes(world)

    assert asked_at_once == [[0, 1]]
    assert told_first == [(P, 20, 60)]
    assert world.client.begins_asked == [[0, 1], [0, 1], [1]]
    assert onlooker.lost == [(P, 20, 60), (Q, 30, 60)]

"""A timeout says where answers stand still although their log goes on; what is slow, idle or at its end does not."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from inference_client.exchange import LOOK_EVERY
from inference_client.standstill import LONG
from tests.unit.client.builders import FakeConsumer, Stage


def lapsed(stage: Stage, seconds: float = LOOK_EVERY) -> str:
    """How a request ends that waits so long in vain."""
    answer = stage.submit(seconds)
    stage.turn(seconds)
    return str(answer.exception(0))


def test_a_partition_that_stands_still_is_named_with_its_offset() -> None:
    """And how long, how much is behind it, and what it may be: from where it began, or from what came last."""
    stage = Stage()
    stage.consumer.ends = {0: 20, 1: 9}
    stage.consumer.reached = {1: 9}
    stage.turn(LOOK_EVERY)

    said = lapsed(stage)

    assert "answers have stood still for 5 s: answers/0 at offset 7, its log goes on to 20. Either the batch" in said
    assert "a new client begins behind it. Or the transaction of a producer is open there: `kafka-tr" in said
    assert "does a worker run" not in said
    stage.consumer.reached = {0: 12, 1: 9}
    assert "does a worker run" in lapsed(stage)
    assert "stood still for 5 s: answers/0 at offset 12," in lapsed(stage)


def test_what_moves_or_waits_for_more_does_not_stand_still() -> None:
    """However far the log is ahead of it; and a partition whose end is not known yet."""
    stage = Stage()
    stage.consumer.ends = {0: 2000}
    stage.turn(LOOK_EVERY)

    for offset in (100, 200, 300):
        stage.consumer.reached = {0: offset, 1: 9}
        assert "does a worker run" in lapsed(stage)


def test_what_was_behind_a_moment_ago_does_not_stand_still() -> None:
    """It may be on its way."""
    stage = Stage()
    stage.turn(LOOK_EVERY - 0.1)
    stage.consumer.ends = {0: 20}

    assert "does a worker run" in lapsed(stage, 0.1)
    assert "does a worker run" in lapsed(stage, LONG - 0.01)
    assert "stood still for 2 s: answers/0 at offset 7" in lapsed(stage, 0.01)


def test_a_new_partition_that_is_empty_does_not_stand_still() -> None:
    """It is read from its beginning, for which Kafka's client has a number below 0."""
    stage = Stage(partitions_now=lambda _: 3)
    stage.turn(LOOK_EVERY)
    stage.consumer.ends = {2: 0}
    stage.turn(LOOK_EVERY)

    assert [at.offset for at in stage.consumer.assigned] == [7, 7, -2]
    assert "does a worker run" in lapsed(stage)


def test_many_partitions_that_stand_still_are_counted() -> None:
    """The first are named."""
    stage = Stage()
    stage.consumer.assigned = FakeConsumer(5).assigned
    stage.consumer.ends = dict.fromkeys(range(5), 8)
    stage.turn(LOOK_EVERY)

    said = lapsed(stage)

    assert "answers/2 at offset 7, its log goes on to 8; 2 more partitions likewise. Either" in said
    assert "answers/3" not in said


def test_a_client_that_cannot_tell_its_position_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other requests are served as before."""

    def fails(*_: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._STATE))

    stage = Stage()
    stage.consumer.ends = {0: 20}
    stage.turn(LOOK_EVERY)
    monkeypatch.setattr(stage.consumer, "position", fails)

    assert "does a worker run" in lapsed(stage)

"""A command that comes right after its topic was made finds it; one whose topic is missing says so soon."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.unit.kafka.client.test_config import settings
from worker.core.failures import BadConfiguration
from worker.kafka.client import command_clients
from worker.kafka.client.command_clients import ASKS_AGAIN, reach

ABSENT, CLOSED = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What the brokers say of the topic, one after the other; nothing more than that is asked."""
    said: list[int | None] = []

    def connect(*_: Any) -> Any:
        code = said.pop(0)
        found = SimpleNamespace(error=None if code is None else KafkaError(code))
        return SimpleNamespace(admin=None, cluster=SimpleNamespace(topics={"answers": found}))

    monkeypatch.setattr(command_clients, "connect", connect)
    monkeypatch.setattr(command_clients, "near_topics", lambda *_: "; there is answer")
    monkeypatch.setattr(command_clients, "ASK_AGAIN", 0.0)
    return said


def test_a_topic_that_was_made_just_now_is_asked_for_again(answers: list[int | None]) -> None:
    """A broker hears of it some milliseconds later."""
    answers += [ABSENT, ABSENT, None]

    assert reach("answers", settings(), "READ").cluster.topics["answers"].error is None
    assert answers == []


def test_a_topic_that_is_missing_is_named_with_those_like_it(answers: list[int | None]) -> None:
    """After a second."""
    answers += [ABSENT] * (ASKS_AGAIN + 1)

    with pytest.raises(BadConfiguration, match="no topic answers; create it, or name another; there is answer"):
        reach("answers", settings(), "READ")
    assert answers == []


def test_a_topic_that_is_closed_to_us_is_said_at_once(answers: list[int | None]) -> None:
    """It will not change by itself."""
    answers += [CLOSED]

    with pytest.raises(BadConfiguration, match="may not use topic answers; grant it the operation READ"):
        reach("answers", settings(), "READ")

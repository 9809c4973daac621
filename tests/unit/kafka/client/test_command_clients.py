"""A command that follows the creation of its topic finds it; with a missing topic it says so soon."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.fakes import Clock
from tests.unit.kafka.client.test_config import settings
from worker.core.failures import BadConfiguration
from worker.kafka.client import command_clients
from worker.kafka.client.command_clients import NO_LOG, reach
from worker.kafka.client.connecting import Contact
from worker.kafka.client.errors import ClientLog

ABSENT, CLOSED = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED


class Admin:
    """Gives the test's replies about a topic, one after the other."""

    def __init__(self, said: list[int | None]) -> None:
        self.said = said

    def list_topics(self, topic: str, *, timeout: float) -> Any:
        code = self.said.pop(0)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None if code is None else KafkaError(code))})


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The brokers' replies about the topic, one per question; any further question fails."""
    said: list[int | None] = []
    clock = Clock()
    contact = Contact(Admin(said), ClientLog(NO_LOG), None)  # type: ignore[arg-type]  # a fake
    monkeypatch.setattr(command_clients, "connect", lambda *_: contact)
    monkeypatch.setattr(command_clients, "time", SimpleNamespace(monotonic=clock, sleep=clock.wait))
    return said


def test_a_topic_that_was_made_just_now_is_asked_for_again(answers: list[int | None]) -> None:
    """A broker hears of it some milliseconds later."""
    answers += [ABSENT, ABSENT, None]

    assert reach("answers", settings(), "READ").cluster.topics["answers"].error is None
    assert answers == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([ABSENT] * 11, "no topic answers; let `inference-worker check --create-topics` make it, or name another"),
        ([CLOSED], "may not use topic answers; grant it the operation READ"),
        ([KafkaError.TOPIC_EXCEPTION], "topic answers cannot be used: "),
    ],
)
def test_a_topic_that_cannot_be_used_is_told_with_the_cure(
    answers: list[int | None], said: list[int | None], told: str
) -> None:
    """A missing topic is reported after two seconds, anything else at once: it will not change by itself."""
    answers += said

    with pytest.raises(BadConfiguration) as refused:
        reach("answers", settings(), "READ")

    assert told in str(refused.value)
    assert answers == []

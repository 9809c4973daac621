"""A cluster is there when an answer names a broker of it."""

from __future__ import annotations

import logging
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.kafka.client.test_config import settings
from worker.core.failures import BadConfiguration
from worker.kafka.client import connecting
from worker.kafka.client.connecting import Contact, connect

LOGGER = logging.getLogger("test")


class Admin:
    """Tells of these brokers, a set at a time, the last one for ever. Has the time."""

    def __init__(self, *told: set[int]) -> None:
        self.told = deque(told)
        self.now = 1000.0

    def list_topics(self, _topic: str, timeout: float) -> Any:
        brokers = self.told.popleft() if len(self.told) > 1 else self.told[0]
        return SimpleNamespace(brokers=brokers, controller_id=min(brokers, default=-1))

    def poll(self, _timeout: float) -> int:
        return 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def connected(monkeypatch: pytest.MonkeyPatch, admin: Admin) -> Contact:
    monkeypatch.setattr(connecting, "AdminClient", lambda *_, **__: admin)
    monkeypatch.setattr(connecting, "time", admin)
    return connect(settings(), LOGGER, 15.0, "answers")


def test_a_broker_that_is_not_let_in_again_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no controller, as librdkafka's mock has none: nothing would be asked of it."""
    found = connected(monkeypatch, Admin(set(), set(), {1}))

    assert found.cluster.controller_id == 1


def test_a_broker_that_is_never_let_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it said."""
    with pytest.raises(BadConfiguration, match="within 15 s: it says that no broker serves its cluster"):
        connected(monkeypatch, Admin(set()))

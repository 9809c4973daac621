"""A cluster is there when an answer names a broker of it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, BrokerMetadata, ClusterMetadata

from tests.unit.kafka.client.test_config import settings
from tests.unit.kafka.client.test_connection_failures import REFUSED
from worker.core.failures import BadConfiguration
from worker.kafka.client import connecting
from worker.kafka.client.connecting import Contact, connect
from worker.kafka.client.log import ClientLog

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


class RefusingAdmin(Admin):
    """The client of a port where nothing listens: it says so when it is polled, and asking takes its whole time."""

    def __init__(self, config: dict[str, Any], logger: Any) -> None:
        super().__init__()
        self.error_cb, self.logger = config["error_cb"], logger

    def list_topics(self, _topic: str, timeout: float) -> Any:
        self.now += timeout
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, _timeout: float) -> int:
        self.logger.log(logging.ERROR, "", "FAIL", "", REFUSED)
        self.error_cb(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        return 0


def connected(monkeypatch: pytest.MonkeyPatch, admin: Admin) -> Contact:
    monkeypatch.setattr(connecting, "AdminClient", lambda *_, **__: admin)
    monkeypatch.setattr(connecting, "time", admin)
    return connect(settings(), LOGGER, 15.0, "answers")


def refused(monkeypatch: pytest.MonkeyPatch, waiting: Callable[[str], object] | None) -> tuple[str, float]:
    """The message, and how long it took where nothing listens."""
    made: list[RefusingAdmin] = []

    def admin_client(config: dict[str, Any], logger: Any) -> RefusingAdmin:
        made.append(RefusingAdmin(config, logger))
        monkeypatch.setattr(connecting, "time", made[0])
        return made[0]

    monkeypatch.setattr(connecting, "AdminClient", admin_client)
    with pytest.raises(BadConfiguration) as told:
        connect(settings(), LOGGER, 15.0, "answers", waiting)
    return str(told.value), made[0].now - 1000.0


def test_a_command_does_not_wait_where_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks, and the address with the cure."""
    message, took = refused(monkeypatch, None)

    assert message.startswith("WORKER_KAFKA__BOOTSTRAP_SERVERS: nothing listens at broker:9092 (connection refused)")
    assert took <= 2.0


def test_a_worker_waits_for_a_broker_and_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is started together with it is there a little later."""
    told: list[str] = []

    message, took = refused(monkeypatch, told.append)

    assert took == pytest.approx(15.0)
    assert "nothing listens at broker:9092" in message
    assert told == [f"{message}; waiting for it, 15 s at most"]


def test_a_broker_that_is_not_let_in_again_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names no broker, itself neither: nothing could be asked of it."""
    found = connected(monkeypatch, Admin(set(), set(), {1}))

    assert found.cluster.controller_id == 1


def test_a_broker_that_is_never_let_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it said."""
    with pytest.raises(BadConfiguration, match="within 15 s: it says that no broker serves its cluster"):
        connected(monkeypatch, Admin(set()))


@pytest.mark.parametrize("cluster_id", ["5L6g3nShT-eMCtK--X86sw", None])
def test_a_cluster_that_elects_its_controller_is_no_mock(cluster_id: str | None) -> None:
    """It answers what is asked of any broker. A mock, which has no controller either, is told by its id."""
    cluster: Any = ClusterMetadata()
    cluster.brokers, cluster.controller_id, cluster.cluster_id = {1: BrokerMetadata()}, -1, cluster_id

    assert not Contact(cast("AdminClient", Admin({1})), ClientLog(LOGGER), cluster).is_mock

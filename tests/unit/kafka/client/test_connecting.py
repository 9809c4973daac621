"""A cluster is there when an answer names one of its brokers; otherwise one line says why, and what to do."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.unit.kafka.client.test_config import settings
from worker.core.failures import BadConfiguration
from worker.kafka.client import connecting
from worker.kafka.client.connecting import Contact, connect, explained
from worker.settings import Connection

LOGGER = logging.getLogger("test")
KAFKA = Connection(
    bootstrap_servers="broker:9093", security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="me"
)
# Lines of librdkafka 2.16.
LOGIN = "sasl_ssl://broker:9093/bootstrap: SASL authentication error: Authentication failed (after 339ms in state AUTH)"
MECHANISM = (
    "sasl_ssl://broker:9093/1: SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's "
    "supported mechanisms: OAUTHBEARER,PLAIN (after 302ms in state AUTH_HANDSHAKE)"
)
ALERT = (
    "ssl://broker:9093/bootstrap: Receive failed: error:0A000416:SSL routines::ssl/tls alert certificate unknown: SSL "
    "alert number 46 (after 4ms in state APIVERSION_QUERY)"
)
HUNG_UP = (
    "broker:9093/bootstrap: Disconnected: connection closed by peer: receive 0 after POLLIN (after 2ms in state "
    "APIVERSION_QUERY)"
)
REFUSED = "broker:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)"
UNKNOWN = "brokr:9092/bootstrap: Failed to resolve 'brokr:9092': Name or service not known (after 3ms in state CONNECT)"
NO_TLS = (
    "ssl://broker:9093/bootstrap: SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a "
    "PLAINTEXT broker listener? (after 1ms in state SSL_HANDSHAKE)"
)
UNTRUSTED = (
    "ssl://broker:9093/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker "
    "certificate could not be verified (after 4ms in state SSL_HANDSHAKE)"
)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (LOGIN, "SASL_MECHANISM: the broker at broker:9093 does not accept the SCRAM-SHA-512 login of user me; check"),
        (LOGIN.replace("broker:9093", "[::1]:9093"), "SASL_MECHANISM: the broker at ::1:9093 does not"),
        (MECHANISM, "SASL_MECHANISM: the broker at broker:9093 takes OAUTHBEARER,PLAIN, not SCRAM-SHA-512; set"),
        (ALERT, "SSL_CERTIFICATE_LOCATION: the broker at broker:9093 wants a client's certificate"),
        (HUNG_UP, "SECURITY_PROTOCOL: the listener at broker:9093 closes the connection at the first word"),
        (HUNG_UP.replace("APIVERSION_QUERY", "UP"), "SECURITY_PROTOCOL: the listener at broker:9093 closes the"),
        (NO_TLS, "SECURITY_PROTOCOL: the listener at broker:9093 speaks no TLS; name the port of one that does"),
        (UNTRUSTED, "SSL_CA_LOCATION: the certificate of the broker at broker:9093 cannot be verified; set"),
        (REFUSED, "BOOTSTRAP_SERVERS: nothing listens at broker:9092 (connection refused); start the broker"),
        (UNKNOWN, "BOOTSTRAP_SERVERS: the name brokr is not known here; check its spelling"),
    ],
)
def test_a_line_is_told_by_its_meaning(said: str, told: str) -> None:
    """The line names setting, broker, fact and cure."""
    assert (explained(KAFKA, said) or "").startswith(f"WORKER_KAFKA__{told}")


def test_an_address_by_which_a_broker_calls_itself_is_told_as_such() -> None:
    """This is common with containers and tunnels: only the first contact works."""
    assert "advertised.listeners" in (explained(KAFKA, REFUSED.replace("/bootstrap", "/1")) or "")
    assert "advertised.listeners" not in (explained(KAFKA, REFUSED) or "")


@pytest.mark.parametrize("said", ["Authentication failed", "broker:9092/1: something else"])
def test_a_line_that_is_not_known_is_left_as_it_is(said: str) -> None:
    """The client's own words are better than a wrong broker or a wrong cure."""
    assert explained(KAFKA, said) is None


class Admin:
    """Answers with these sets of brokers, one at a time; the last set repeats. It is also the clock."""

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
    """The client of a port where nothing listens: a poll reports it, and each question takes its whole time."""

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
    """The message, and the time it took, where nothing listens."""
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
    """It looks twice, and names the address with the cure."""
    message, took = refused(monkeypatch, None)

    assert message.startswith("WORKER_KAFKA__BOOTSTRAP_SERVERS: nothing listens at broker:9092 (connection refused)")
    assert took <= 2.0


def test_a_worker_waits_for_a_broker_and_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that starts together with the worker is there a little later."""
    told: list[str] = []

    message, took = refused(monkeypatch, told.append)

    assert took == pytest.approx(15.0)
    assert told == [f"{message}; waiting for it, 15 s at most"]


def test_a_broker_that_is_not_let_in_again_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names no broker, not even itself, so it cannot be asked. In the end the worker gives up and quotes it."""
    assert connected(monkeypatch, Admin(set(), set(), {1})).cluster.controller_id == 1
    with pytest.raises(BadConfiguration, match="within 15 s: it says that no broker serves its cluster"):
        connected(monkeypatch, Admin(set()))

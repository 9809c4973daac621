"""Lines of the client's about a failed connection, as librdkafka 2.16 wrote them, and what we make of them."""

from __future__ import annotations

import pytest

from worker.kafka.client.connection_failures import absence_in, explained, failure_in
from worker.settings import Connection

KAFKA = Connection(
    bootstrap_servers="broker:9093", security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="me"
)
LOGIN = (
    "sasl_ssl://broker:9093/bootstrap: SASL authentication error: Authentication failed (after 339ms in state AUTH_REQ)"
)


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
NO_TLS = (
    "ssl://broker:9093/bootstrap: SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a "
    "PLAINTEXT broker listener? (after 1ms in state SSL_HANDSHAKE)"
)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (LOGIN, "SASL_MECHANISM: the broker at broker:9093 does not accept the SCRAM-SHA-512 login of user me; check"),
        (LOGIN.replace("broker:9093/bootstrap", "[::1]:9093/1"), "SASL_MECHANISM: the broker at ::1:9093 does not"),
        (MECHANISM, "SASL_MECHANISM: the broker at broker:9093 takes OAUTHBEARER,PLAIN, not SCRAM-SHA-512; set"),
        (ALERT, "SSL_CERTIFICATE_LOCATION: the broker at broker:9093 wants a client's certificate; set"),
        (
            HUNG_UP,
            "SECURITY_PROTOCOL: the listener at broker:9093 closes the connection at the first word without TLS;",
        ),
        (NO_TLS, "SECURITY_PROTOCOL: the listener at broker:9093 speaks no TLS; name the port of one that does"),
    ],
)
def test_a_line_is_told_by_what_it_means(said: str, told: str) -> None:
    """Setting, broker, fact and cure."""
    line = explained(KAFKA, said)

    assert line is not None
    assert line.startswith(f"WORKER_KAFKA__{told}")


def test_what_may_pass_by_itself_is_no_failure() -> None:
    """A broker that is away is waited for; what it means is told all the same."""
    assert failure_in(REFUSED) is None
    assert absence_in(REFUSED) is not None
    assert absence_in(HUNG_UP) is None
    assert (explained(KAFKA, REFUSED) or "").startswith(
        "WORKER_KAFKA__BOOTSTRAP_SERVERS: nothing listens at broker:9092 (connection refused); start the broker"
    )


def test_a_name_that_is_not_known_is_told() -> None:
    """A typing error, or a network whose names are not known yet."""
    said = (
        "brokr:9092/bootstrap: Failed to resolve 'brokr:9092': Name or service not known (after 3ms in state CONNECT)"
    )

    assert "the name brokr is not known here; check its spelling" in (explained(KAFKA, said) or "")


def test_a_login_with_a_token_names_its_own_settings() -> None:
    """There is no password to look at."""
    kafka = KAFKA.model_copy(update={"sasl_mechanism": "OAUTHBEARER", "sasl_username": None})

    assert (explained(kafka, LOGIN) or "").endswith(
        "does not accept the OAUTHBEARER login; check WORKER_KAFKA__OAUTH_CLIENT_ID and "
        "WORKER_KAFKA__OAUTH_CLIENT_SECRET"
    )


def test_a_line_without_an_address_is_left_as_it_is() -> None:
    """Rather the client's own words than a wrong broker."""
    assert explained(KAFKA, "Authentication failed") is None

"""Why a connection to a broker failed: each kind of line that librdkafka has for it, as a sentence with the cure.

Pure but for a look at a certificate that was not trusted, about which the client says too little.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from worker.kafka.client.untrusted_certificate import why_untrusted
from worker.settings import Connection

# A listener that closes the connection at our first word speaks another protocol, or is shutting down and soon gone.
CLOSED_FOR = 1.0

# A broker that is restarted at the wrong moment gets two looks.
AWAY_FOR = 1.0

_ADDRESS = re.compile(r"^(?:\w+://)?\[?(?P<host>[^/\s]+?)\]?:(?P<port>\d+)/")
_SERVERS = "WORKER_KAFKA__BOOTSTRAP_SERVERS"
_PROTOCOL = "WORKER_KAFKA__SECURITY_PROTOCOL"
_MECHANISM = "WORKER_KAFKA__SASL_MECHANISM"
_CERTIFICATE = "WORKER_KAFKA__SSL_CERTIFICATE_LOCATION"


class Met(NamedTuple):
    """One line of the client's about a connection that failed."""

    kafka: Connection
    host: str
    port: int
    said: str

    @property
    def where(self) -> str:
        return f"{self.host}:{self.port}"


class ConnectionFailure(NamedTuple):
    """One kind: what the client's line has, how we say it, and the seconds that it must last to be believed."""

    sign: re.Pattern[str]
    told: Callable[[Met], str]
    believed_after: float


def failure_in(said: str) -> ConnectionFailure | None:
    """The kind of failure that a line of the client's is about; None for what may pass by itself."""
    return next((failure for failure in FAILURES if failure.sign.search(said)), None)


def absence_in(said: str) -> ConnectionFailure | None:
    """What a line says of a broker that is not there; None for any other. It passes by itself where one is started."""
    return next((absence for absence in ABSENCES if absence.sign.search(said)), None)


def explained(kafka: Connection, said: str) -> str | None:
    """What the line means for its reader, with the cure; None where nothing more is known of it."""
    failure, address = failure_in(said) or absence_in(said), _ADDRESS.match(said)
    if failure is None or address is None:
        return None
    return failure.told(Met(kafka, address["host"], int(address["port"]), said))


def _certificate(met: Met) -> str:
    return f"{_PROTOCOL}: the certificate of the broker at {met.where} {why_untrusted(met.kafka, met.host, met.port)}"


def _login(met: Met) -> str:
    user = f" of user {met.kafka.sasl_username}" if met.kafka.sasl_username else ""
    names = "OAUTH_CLIENT_ID and WORKER_KAFKA__OAUTH_CLIENT_SECRET"
    if met.kafka.sasl_mechanism != "OAUTHBEARER":
        names = "SASL_USERNAME and WORKER_KAFKA__SASL_PASSWORD"
    return (
        f"{_MECHANISM}: the broker at {met.where} does not accept the {met.kafka.sasl_mechanism} "
        f"login{user}; check WORKER_KAFKA__{names}"
    )


def _mechanism(met: Met) -> str:
    offered = met.said.partition("supported mechanisms:")[2].partition(" (after")[0].strip() or "no mechanism"
    return (
        f"{_MECHANISM}: the broker at {met.where} takes {offered}, not {met.kafka.sasl_mechanism}; "
        "set one that it takes"
    )


def _no_login(met: Met) -> str:
    other = met.kafka.security_protocol.removeprefix("SASL_")
    return (
        f"{_PROTOCOL}: the listener at {met.where} takes no login; set {other}, or name the port of the listener that "
        "does"
    )


def _client_certificate(met: Met) -> str:
    own = met.kafka.ssl_certificate_location
    if own is None:
        return (
            f"{_CERTIFICATE}: the broker at {met.where} wants a client's certificate; set it and "
            "WORKER_KAFKA__SSL_KEY_LOCATION"
        )
    return (
        f"{_CERTIFICATE}: the broker at {met.where} does not accept {own}: it has expired, or is "
        "signed by an authority that the broker does not trust (its ssl.truststore); have it renewed"
    )


def _no_tls(met: Met) -> str:
    other = "SASL_PLAINTEXT or PLAINTEXT" if met.kafka.security_protocol == "SASL_SSL" else "PLAINTEXT"
    return f"{_PROTOCOL}: the listener at {met.where} speaks no TLS; name the port of one that does, or set {other}"


def _wants_tls(met: Met) -> str:
    return (
        f"{_PROTOCOL}: the listener at {met.where} closes the connection at the first word without TLS; set it to SSL "
        "or SASL_SSL, or name the port of a listener without TLS"
    )


def _wants_login(met: Met) -> str:
    return (
        f"{_PROTOCOL}: the listener at {met.where} closes the connection at the first request without a login; set it "
        f"to SASL_{met.kafka.security_protocol.removeprefix('SASL_')}, with {_MECHANISM} and its login"
    )


def _nothing_listens(met: Met) -> str:
    return (
        f"{_SERVERS}: nothing listens at {met.where} (connection refused); start the broker, or name the address of "
        "one that runs"
    )


def _unknown_host(met: Met) -> str:
    return f"{_SERVERS}: the name {met.host} is not known here; check its spelling and the network's DNS"


# In order: the first sign that is found counts.
FAILURES = (
    ConnectionFailure(re.compile("certificate verify failed"), _certificate, 0.0),
    ConnectionFailure(re.compile("Unsupported SASL mechanism"), _mechanism, 0.0),
    ConnectionFailure(re.compile("not valid in current SASL state"), _no_login, 0.0),
    ConnectionFailure(re.compile("SASL authentication error|Authentication failed"), _login, 0.0),
    ConnectionFailure(re.compile("alert (bad certificate|certificate|unknown ca)"), _client_certificate, 0.0),
    ConnectionFailure(re.compile("connecting to a PLAINTEXT broker listener"), _no_tls, 0.0),
    ConnectionFailure(re.compile("closed by peer.*in state APIVERSION_QUERY"), _wants_tls, CLOSED_FOR),
    ConnectionFailure(re.compile("closed by peer.*in state UP"), _wants_login, CLOSED_FOR),
)
ABSENCES = (
    ConnectionFailure(re.compile("Connection refused"), _nothing_listens, AWAY_FOR),
    ConnectionFailure(re.compile("Failed to resolve"), _unknown_host, AWAY_FOR),
)

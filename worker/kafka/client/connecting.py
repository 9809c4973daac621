"""The first contact with a cluster gives an administrative client, or one sentence with the reason and the cure.

librdkafka tries again for ever, and logs its reasons as lines: `FAILURES` explains each kind of line. A worker waits
for a broker that is not there, and says so. A command does not wait.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from worker.core.failures import BadConfiguration
from worker.core.secrets import without_login
from worker.kafka.client.config import SECURITY, admin_config, denied_keys
from worker.kafka.client.errors import ClientLog, words_of
from worker.settings import Connection

# Seconds until the client is first polled for its errors, which it tells only in a poll. Each next glance is twice as
# long, because a slow answer must fit into one.
FIRST_GLANCE = 0.5
LOOK_AGAIN = 0.2  # seconds; an answer without brokers comes at once
BELIEVED_AFTER = 1.0  # seconds until a failure is final: a broker that restarts gets a second look
_ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - librdkafka's own codes begin with an underscore
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token: "  # noqa: S105  # the beginning of the client's error
_TAIL = re.compile(r" \(after \d+ms in state \w+.*\)$")
# `name` is `bootstrap` for an address of the settings, and the broker's number for an address that it advertises.
_ADDRESS = re.compile(r"^(?:\w+://)?\[?(?P<host>[^/\s]+?)\]?:(?P<port>\d+)/(?P<name>\w+)")


# A pattern in the client's line, and the cause and cure that follow `WORKER_KAFKA__`. The first pattern found counts.
FAILURES: Mapping[str, str] = {
    "certificate verify failed": (
        "SSL_CA_LOCATION: the certificate of the broker at {where} cannot be verified; set it to a PEM file with the "
        "authority that signed the certificate, and see that this names {host} and has not expired"
    ),
    r"Unsupported SASL mechanism(?:.*supported mechanisms: (?P<offered>[\w,-]+))?": (
        "SASL_MECHANISM: the broker at {where} takes {offered}, not {mechanism}; set one that it takes"
    ),
    "not valid in current SASL state": (
        "SECURITY_PROTOCOL: the listener at {where} takes no login; set {without_login}, or name the port of a "
        "listener that does"
    ),
    "SASL authentication error|Authentication failed": (
        "SASL_MECHANISM: the broker at {where} does not accept the {mechanism} login{user}; check {login}"
    ),
    "alert (bad certificate|certificate|unknown ca)": (
        "SSL_CERTIFICATE_LOCATION: the broker at {where} wants a client's certificate that it trusts, and gets "
        "{certificate}; set one that has not expired, and WORKER_KAFKA__SSL_KEY_LOCATION"
    ),
    "connecting to a PLAINTEXT broker listener": (
        "SECURITY_PROTOCOL: the listener at {where} speaks no TLS; name the port of one that does, or set {plain}"
    ),
    "closed by peer.*in state APIVERSION_QUERY": (
        "SECURITY_PROTOCOL: the listener at {where} closes the connection at the first word without TLS; set it to SSL "
        "or SASL_SSL, or name the port of a listener without TLS"
    ),
    "closed by peer.*in state UP": (
        "SECURITY_PROTOCOL: the listener at {where} closes the connection at the first request without a login; set it "
        "to SASL_{without_login}, with WORKER_KAFKA__SASL_MECHANISM and its login"
    ),
    "Connection refused": (
        "BOOTSTRAP_SERVERS: nothing listens at {where} (connection refused); start the broker, or name the address of "
        "one that runs"
    ),
    "Failed to resolve": (
        "BOOTSTRAP_SERVERS: the name {host} is not known here; check its spelling and the network's DNS"
    ),
}
# These failures pass by themselves while a broker starts.
ABSENCES = ("Connection refused", "Failed to resolve")


def explained(kafka: Connection, said: str) -> str | None:
    """The explanation of one of the client's lines, with the cure; None for an unknown kind of line."""
    address = _ADDRESS.match(said)
    found, told = next(
        ((found, told) for sign, told in FAILURES.items() if (found := re.search(sign, said))), (None, "")
    )
    if found is None or address is None:
        return None
    is_token = kafka.sasl_mechanism == "OAUTHBEARER"
    first, second = ("OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET") if is_token else ("SASL_USERNAME", "SASL_PASSWORD")
    where = f"{address['host']}:{address['port']}"
    told = told.format(
        where=where,
        host=address["host"],
        offered=found.groupdict().get("offered") or "no mechanism",
        mechanism=kafka.sasl_mechanism,
        user=f" of user {kafka.sasl_username}" if kafka.sasl_username else "",
        login=f"WORKER_KAFKA__{first} and WORKER_KAFKA__{second}",
        certificate=kafka.ssl_certificate_location or "none",
        without_login=kafka.security_protocol.removeprefix("SASL_"),
        plain="SASL_PLAINTEXT or PLAINTEXT" if kafka.security_protocol == "SASL_SSL" else "PLAINTEXT",
    )
    if found[0] in ABSENCES and address["name"] != "bootstrap" and where not in kafka.bootstrap_servers:
        told += f"; a broker calls itself {where} (advertised.listeners): name its listener for this network"
    return f"WORKER_KAFKA__{told}"


class Contact(NamedTuple):
    """A cluster that answers. `log` keeps what its client says."""

    admin: AdminClient
    log: ClientLog
    cluster: ClusterMetadata

    @property
    def is_mock(self) -> bool:
        """True for librdkafka's mock, which does not answer administrative requests."""
        return str(self.cluster.cluster_id).startswith("mockCluster")


def connect(
    kafka: Connection,
    logger: logging.Logger,
    timeout: float,
    topic: str,
    waiting: Callable[[str], object] | None = None,
) -> Contact:
    """Connect, and ask for one topic to get a small answer. The topic need not exist.

    `waiting` is told, once, that no broker is there yet; with None, nothing waits for a broker.

    Raises `BadConfiguration` when the client refuses its configuration, or no broker answers within `timeout` seconds.
    """
    if problems := denied_keys(kafka):
        raise BadConfiguration("\n".join(problems))
    log = ClientLog(logger)
    errors: list[KafkaError] = []
    # If the port is wrong, a closed connection may be the only sign of it.
    config: dict[str, Any] = {**admin_config(kafka), "log.connection.close": True, "error_cb": errors.append}
    try:
        admin = AdminClient(config, logger=log)
    except (KafkaException, ValueError, TypeError) as error:
        raise BadConfiguration(_refused(kafka, error)) from error
    began, glance, is_told = time.monotonic(), FIRST_GLANCE, False
    while True:
        try:
            return Contact(admin, log, _look(admin, topic, min(glance, timeout)))
        except KafkaException as error:
            admin.poll(0)  # hear the client's errors
            waited = time.monotonic() - began
            told = explained(kafka, log.last) if any(error.code() == _ALL_DOWN for error in errors) else None
            is_waited_for = waiting is not None and any(sign in log.last for sign in ABSENCES)
            if told and is_waited_for and waiting is not None and not is_told:
                waiting(f"{told}; waiting for it, {timeout:g} s at most")
                is_told = True
            is_final = told and not is_waited_for and waited >= BELIEVED_AFTER
            if is_final or waited >= timeout:
                raise BadConfiguration(_why(kafka, log.last or words_of(error), errors, timeout)) from error
            glance = min(2 * glance, timeout - waited)


def _look(admin: AdminClient, topic: str, timeout: float) -> ClusterMetadata:
    """Ask for the topic. A broker that the controller has not let in again yet names no broker: that fails, too."""
    cluster = admin.list_topics(topic, timeout=timeout)
    if not cluster.brokers:
        time.sleep(LOOK_AGAIN)
        raise KafkaException(KafkaError(KafkaError.BROKER_NOT_AVAILABLE, "it says that no broker serves its cluster"))
    return cluster


def _why(kafka: Connection, said: str, errors: Sequence[KafkaError], timeout: float) -> str:
    """The reason of the last failure. Without a token the client has asked no broker."""
    if told := explained(kafka, said):
        return told
    if tokens := [error.str() for error in errors if error.str().startswith(_NO_TOKEN)]:
        return (
            "WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL: no token is issued there: "
            f"{without_login(tokens[-1].removeprefix(_NO_TOKEN))}; check it, WORKER_KAFKA__OAUTH_CLIENT_ID and "
            "WORKER_KAFKA__OAUTH_CLIENT_SECRET"
        )
    return (
        f"WORKER_KAFKA__BOOTSTRAP_SERVERS: no broker at {kafka.bootstrap_servers} answers within {timeout:g} s: "
        f"{_TAIL.sub('', said)}; check the address, the network and WORKER_KAFKA__SECURITY_PROTOCOL"
    )


def _refused(kafka: Connection, error: Exception) -> str:
    """The reason why the client was not made: a file is no certificate or another's key, CONFIG has an unknown key."""
    said = words_of(error)
    for setting, path in kafka.certificates.items():
        if SECURITY[setting] in said:
            why = said.rpartition("::")[2].strip()
            opened = ", and if it is encrypted the password in WORKER_KAFKA__SSL_KEY_PASSWORD"
            needed = f"a PEM file is needed{opened if setting == 'ssl_key_location' else ''}"
            return f"WORKER_KAFKA__{setting.upper()}: {path} cannot be used: {why}; {needed}"
    return f"WORKER_KAFKA__CONFIG: the Kafka client refuses its configuration: {said}"

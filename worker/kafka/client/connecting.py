"""The first contact with a cluster: an administrative client, and why there is none, as one sentence with the cure.

librdkafka tries again for ever, and its reasons are lines of a log. Here each kind of reason is known: a refused login
or certificate ends the wait at once; a broker that is not there is waited for by a worker, which says so, and not by a
command. Owns nothing after it returns.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from worker.core.failures import BadConfiguration
from worker.core.secrets import without_login
from worker.kafka.client.config import SECURITY, admin_config
from worker.kafka.client.connection_failures import absence_in, explained, failure_in
from worker.kafka.client.denied_keys import denied_keys
from worker.kafka.client.errors import words_of
from worker.kafka.client.log import ClientLog
from worker.settings import Connection

# Seconds until the first look at what the client has met, which it tells only when it is polled. Each next glance is
# twice as long: an answer that is slow to come must fit into one.
FIRST_GLANCE = 0.5
LOOK_AGAIN = 0.2  # seconds; such an answer comes at once
_ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - librdkafka's own codes begin with an underscore
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token: "  # noqa: S105  # how the client begins to say so
_TO_OPEN_IT = ", and if it is encrypted the password in WORKER_KAFKA__SSL_KEY_PASSWORD"
_TAIL = re.compile(r" \(after \d+ms in state \w+.*\)$")


class Contact(NamedTuple):
    """A cluster that answers. `log` is what its client has to say."""

    admin: AdminClient
    log: ClientLog
    cluster: ClusterMetadata

    @property
    def is_mock(self) -> bool:
        """Whether it is librdkafka's mock, which does not answer administrative requests.

        It has no controller, either. But so it is with a cluster that elects one.
        """
        return str(self.cluster.cluster_id).startswith("mockCluster")


def connect(
    kafka: Connection,
    logger: logging.Logger,
    timeout: float,
    topic: str,
    waiting: Callable[[str], object] | None = None,
) -> Contact:
    """Ask for a topic, to have one small answer. It need not exist.

    `waiting` is told, once, that no broker is there yet; None: that is not waited for.

    Raises `BadConfiguration` when the client refuses its configuration, or no broker answers within `timeout` seconds.
    """
    if problems := denied_keys(kafka):
        raise BadConfiguration("\n".join(problems))
    log = ClientLog(logger)
    errors: list[KafkaError] = []
    # A listener that hangs up at once may be all there is to hear of a wrong port.
    config: dict[str, Any] = {**admin_config(kafka), "log.connection.close": True, "error_cb": errors.append}
    try:
        admin = AdminClient(config, logger=log)
    except (KafkaException, ValueError, TypeError) as error:
        raise BadConfiguration(_refused(kafka, error)) from error
    patience = _Patience(kafka, timeout, waiting)
    began = time.monotonic()
    glance = FIRST_GLANCE
    while True:
        try:
            return Contact(admin, log, _look(admin, topic, min(glance, timeout)))
        except KafkaException as error:
            admin.poll(0)  # hear what the client has to say about it
            waited = time.monotonic() - began
            are_all_down = any(error.code() == _ALL_DOWN for error in errors)
            if waited >= timeout or (are_all_down and patience.is_over(log.last, waited)):
                raise BadConfiguration(_why(kafka, log.last or words_of(error), errors, timeout)) from error
            glance = min(2 * glance, timeout - waited)


class _Patience:
    """Which failures of all brokers end the wait before its time. Owns whether `waiting` was told."""

    def __init__(self, kafka: Connection, timeout: float, waiting: Callable[[str], object] | None) -> None:
        self._kafka = kafka
        self._timeout = timeout
        self._waiting = waiting
        self._was_told = False

    def is_over(self, said: str, waited: float) -> bool:
        failure = failure_in(said) or (absence_in(said) if self._waiting is None else None)
        if failure is not None:
            return waited >= failure.believed_after
        if self._waiting is not None and not self._was_told and absence_in(said) is not None:
            self._was_told = True
            self._waiting(f"{explained(self._kafka, said)}; waiting for it, {self._timeout:g} s at most")
        return False


def _look(admin: AdminClient, topic: str, timeout: float) -> ClusterMetadata:
    """A broker that the controller has not let in again yet names none at all, itself neither: ask again."""
    cluster = admin.list_topics(topic, timeout=timeout)
    if not cluster.brokers:
        time.sleep(LOOK_AGAIN)
        raise KafkaException(KafkaError(KafkaError.BROKER_NOT_AVAILABLE, "it says that no broker serves its cluster"))
    return cluster


def _why(kafka: Connection, said: str, errors: Sequence[KafkaError], timeout: float) -> str:
    return (
        explained(kafka, said)
        or _no_token(errors)
        or (
            f"WORKER_KAFKA__BOOTSTRAP_SERVERS: no broker at {kafka.bootstrap_servers} answers within {timeout:g} s: "
            f"{_TAIL.sub('', said)}; check the address, the network and WORKER_KAFKA__SECURITY_PROTOCOL"
        )
    )


def _no_token(errors: Sequence[KafkaError]) -> str | None:
    """No broker was even asked: the endpoint that issues tokens refuses us, is away, or issues none."""
    said = [error.str() for error in errors if error.str().startswith(_NO_TOKEN)]
    if not said:
        return None
    why = without_login(said[-1].removeprefix(_NO_TOKEN))
    return (
        f"WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL: no token is issued there: {why}; check it, "
        "WORKER_KAFKA__OAUTH_CLIENT_ID and WORKER_KAFKA__OAUTH_CLIENT_SECRET"
    )


def _refused(kafka: Connection, error: Exception) -> str:
    """The client did not even begin: a file that is no certificate, a key of another, an unknown key of CONFIG."""
    said = words_of(error)
    for setting, path in kafka.certificates.items():
        if SECURITY[setting] in said:
            why = said.rpartition("::")[2].strip()
            needed = f"a PEM file is needed{_TO_OPEN_IT if setting == 'ssl_key_location' else ''}"
            return f"WORKER_KAFKA__{setting.upper()}: {path} cannot be used: {why}; {needed}"
    return f"WORKER_KAFKA__CONFIG: the Kafka client refuses its configuration: {said}"

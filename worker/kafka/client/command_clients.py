"""The plain clients with which commands and the demo reach a broker: outside any group, set up by the settings."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata

from worker.core.failures import BadConfiguration
from worker.kafka.client.config import Config, admin_config, denied_keys
from worker.kafka.client.connecting import Contact, connect
from worker.kafka.client.errors import GONE, ClientLog, configuring
from worker.settings import Connection

ANSWER_TIMEOUT = 10.0  # seconds; a TLS and SASL handshake with a broker far away takes one or two

# Seconds. A broker may not know a new topic yet, so it is asked again: for how long, and at which interval.
NEW_TOPIC_TIMEOUT, ASK_AGAIN_AFTER = 2.0, 0.2

# This logger writes nothing: its lines would break into what a command draws.
NO_LOG = logging.getLogger(__name__)
NO_LOG.addHandler(logging.NullHandler())

_Client = TypeVar("_Client", Producer, Consumer)


def client_log() -> ClientLog:
    """A log that keeps the client's last failure line, and passes nothing on."""
    return ClientLog(NO_LOG)


def open_client(
    kind: type[_Client], kafka: Connection, tuning: Config, promised: Mapping[str, Any], log: ClientLog
) -> _Client:
    """Make a client. The operator's settings override `tuning`, never `promised`. Raises `BadConfiguration`."""
    if problems := denied_keys(kafka):
        raise BadConfiguration("\n".join(problems))
    with configuring("Kafka client"):
        return kind({**tuning, **admin_config(kafka), **promised}, logger=log)


def reach(topic: str, kafka: Connection, operation: str) -> Contact:
    """Connect, and check that we may use the topic; `operation` is the right for it. Raises `BadConfiguration`."""
    contact = connect(kafka, NO_LOG, ANSWER_TIMEOUT, topic)
    cluster = look_up(contact.admin, topic, ANSWER_TIMEOUT, time.monotonic() + NEW_TOPIC_TIMEOUT)
    if (error := cluster.topics[topic].error) is None:
        return contact._replace(cluster=cluster)
    raise BadConfiguration(why_unusable(topic, error, operation))


def look_up(admin: AdminClient, topic: str, timeout: float, wait_until: float) -> ClusterMetadata:
    """Ask for the topic; while it is missing, again until monotonic `wait_until`. Raises `KafkaException`."""
    while True:
        cluster = admin.list_topics(topic=topic, timeout=timeout)
        error = cluster.topics[topic].error
        if error is None or error.code() not in GONE or time.monotonic() >= wait_until:
            return cluster
        time.sleep(ASK_AGAIN_AFTER)


def why_unusable(topic: str, error: KafkaError, operation: str) -> str:
    """The error text: why the topic cannot be used, and the cure."""
    if error.code() in GONE:
        return f"there is no topic {topic}; let `inference-worker check --create-topics` make it, or name another"
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return f"this client may not use topic {topic}; grant it the operation {operation}"
    return f"topic {topic} cannot be used: {error.str()}"

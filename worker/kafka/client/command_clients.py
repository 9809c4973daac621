"""How commands and the demo reach a broker: plain clients outside any group, connected as the settings say.

Owns no client. What the client library has to say goes into the message of the failure that it explains.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, Producer

from worker.core.failures import BadConfiguration
from worker.kafka.client.absent_topics import near_topics
from worker.kafka.client.config import Config, admin_config
from worker.kafka.client.connecting import Contact, connect
from worker.kafka.client.denied_keys import denied_keys
from worker.kafka.client.errors import GONE, configuring
from worker.kafka.client.log import ClientLog
from worker.settings import Connection

ANSWER_TIMEOUT = 10.0  # seconds; a TLS and SASL handshake with a broker far away takes one or two

# A broker may not have heard of a topic that was made just now. Seconds until it is asked again, and how often.
ASK_AGAIN, ASKS_AGAIN = 0.2, 5

# Writes nothing: its lines would run through what a command draws.
NO_LOG = logging.getLogger(__name__)
NO_LOG.addHandler(logging.NullHandler())

_Client = TypeVar("_Client", Producer, Consumer)


def client_log() -> ClientLog:
    """Keeps what a client says, and passes nothing on."""
    return ClientLog(NO_LOG)


def open_client(
    kind: type[_Client], kafka: Connection, tuning: Config, promised: Mapping[str, Any], log: ClientLog
) -> _Client:
    """What is tuning the operator may override, what a promise rests on not. Raises `BadConfiguration`."""
    if problems := denied_keys(kafka):
        raise BadConfiguration("\n".join(problems))
    with configuring("Kafka client"):
        return kind({**tuning, **admin_config(kafka), **promised}, logger=log)


def reach(topic: str, kafka: Connection, operation: str) -> Contact:
    """A cluster that has the topic for us; `operation` is what will be done to it. Raises `BadConfiguration`."""
    contact = connect(kafka, NO_LOG, ANSWER_TIMEOUT, topic)
    error = contact.cluster.topics[topic].error
    for _ in range(ASKS_AGAIN):
        if error is None or error.code() not in GONE:
            break
        time.sleep(ASK_AGAIN)
        contact = connect(kafka, NO_LOG, ANSWER_TIMEOUT, topic)
        error = contact.cluster.topics[topic].error
    if error is not None:
        near = near_topics(contact.admin, topic, ANSWER_TIMEOUT) if error.code() in GONE else ""
        raise BadConfiguration(why_unusable(topic, error, operation) + near)
    return contact


def why_unusable(topic: str, error: KafkaError, operation: str) -> str:
    """What is wrong with the topic, and the cure."""
    if error.code() in GONE:
        return f"there is no topic {topic}; create it, or name another"
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return f"this client may not use topic {topic}; grant it the operation {operation}"
    return f"topic {topic} cannot be used: {error.str()}"

"""Questions to a broker about its topics and groups. An answer is None if the broker will not or cannot tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import TypeAlias, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConsumerGroupDescription,
    ListOffsetsResultInfo,
    ResourceType,
)

from worker.kafka.client.config import admin_config
from worker.kafka.client.connecting import Contact
from worker.kafka.client.errors import ClientLog
from worker.settings import Connection

T = TypeVar("T")
Configs: TypeAlias = Mapping[str, Mapping[str, str] | None]  # by topic
TIMED_OUT = KafkaError._TIMED_OUT  # noqa: SLF001  # public, as all codes
LIMIT_KEY = "max.message.bytes"
# Seconds that the client itself gives a question about groups, its most: an answer that comes after that time ends the
# process (librdkafka 2.16, an assertion in `rd_kafka_enq_once_del_source_return`). Who asks waits for less, and deletes
# the client. With both times equal, 2 of 480 answers came between them (2026-11).
OUTLASTING = 3600.0
_REQUEST_KEY = "socket.request.max.bytes"
# Bytes for the names in a produce request, next to the batch: ours, the topic's, and the transactional id.
_ROOM_FOR_NAMES = 4 * 1024
LARGEST_USUAL_RECORD = 104_857_600 - _ROOM_FOR_NAMES  # by Kafka's default


def told(future: Future[T], timeout: float) -> T | None:
    """The answer; None if it does not come within `timeout` seconds."""
    try:
        return future.result(timeout)
    except (KafkaException, TimeoutError):
        return None


def known_offset(future: Future[ListOffsetsResultInfo], timeout: float | None = None) -> int:
    """The offset that was asked for. Raises `KafkaException`, or `TimeoutError` after `timeout` seconds.

    If the leader does not answer in time, the client gives offset -1001 instead of an error (librdkafka 2.16).
    """
    offset = int(future.result(timeout).offset)
    if offset < 0:
        raise KafkaException(KafkaError(TIMED_OUT, "the leader does not say where a partition begins or ends"))
    return offset


def told_offset(future: Future[ListOffsetsResultInfo], timeout: float) -> int | None:
    """The offset that was asked for; None if it does not come within `timeout` seconds."""
    try:
        return known_offset(future, timeout)
    except (KafkaException, TimeoutError):
        return None


def described_group(kafka: Connection, group: str, timeout: float, log: ClientLog) -> ConsumerGroupDescription:
    """Ask a group's coordinator about it. Raises `KafkaException`, or `TimeoutError` after `timeout` seconds.

    A client of its own asks, and is deleted then: see `OUTLASTING`.
    """
    admin = AdminClient(admin_config(kafka), logger=log)
    try:
        asked = admin.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=OUTLASTING)
        return cast("ConsumerGroupDescription", asked[group].result(timeout))
    finally:
        del admin  # the traceback of an error would keep it


def topic_configs(admin: AdminClient, topics: Collection[str], keys: Collection[str], timeout: float) -> Configs:
    """The settings `keys` of each topic, as far as it has them; None if the broker does not tell."""
    if not topics:
        return {}
    resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
    asked = admin.describe_configs(list(resources.values()), request_timeout=timeout)
    described = {topic: told(asked[resource], timeout) for topic, resource in resources.items()}
    return {
        topic: None if entries is None else {key: entries[key].value for key in keys if key in entries}
        for topic, entries in described.items()
    }


def record_limit(topic: str, contact: Contact, timeout: float) -> int | None:
    """The bytes of the largest batch, and so record, that the topic takes; None if the broker does not tell us."""
    config = None if contact.is_mock else topic_configs(contact.admin, [topic], [LIMIT_KEY], timeout)[topic]
    return int(config[LIMIT_KEY]) if config else None


def largest_record(admin: AdminClient, broker: int, timeout: float) -> int:
    """The bytes of the largest record that fits a request to the broker; Kafka's default if it does not tell.

    The broker silently closes the connection at a larger request, and the client sends the request again for ever.
    """
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    asked = admin.describe_configs([resource], request_timeout=timeout)
    entry = (told(asked[resource], timeout) or {}).get(_REQUEST_KEY)
    return LARGEST_USUAL_RECORD if entry is None else int(entry.value) - _ROOM_FOR_NAMES

"""Questions to a broker about its topics and groups, and its answer: None where it will not tell, or is too old to.

Asks and waits; what to do without an answer is for those who ask.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import TypeVar, cast

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._group import ConsumerGroupDescription
from confluent_kafka.admin._resource import ResourceType

from worker.kafka.client.config import admin_config
from worker.kafka.client.log import ClientLog
from worker.settings import Connection

T = TypeVar("T")


def told(future: Future[T], timeout: float) -> T | None:
    """The answer, if it comes within `timeout` seconds."""
    try:
        return future.result(timeout)
    except (KafkaException, TimeoutError):
        return None


def described_group(
    kafka: Connection, group: str, timeout: float, log: ClientLog, *, with_operations: bool = False
) -> ConsumerGroupDescription:
    """What its coordinator tells of a group. Raises `KafkaException`, or `TimeoutError` after `timeout` seconds.

    Asked by a client that goes with the answer, or without one: a coordinator that answers when the question has timed
    out ends the process (librdkafka 2.16, an assertion in `rd_kafka_enq_once_del_source_return`; reproduced with a
    broker that stands still for longer than that).
    """
    admin = AdminClient(admin_config(kafka), logger=log)
    try:
        asked = admin.describe_consumer_groups(
            [group], include_authorized_operations=with_operations, request_timeout=timeout
        )
        return cast("ConsumerGroupDescription", asked[group].result(timeout))
    finally:
        del admin  # which the traceback of an error would keep


def group_if_told(kafka: Connection, group: str, timeout: float, log: ClientLog) -> ConsumerGroupDescription | None:
    """The same, if the coordinator tells."""
    try:
        return described_group(kafka, group, timeout, log)
    except (KafkaException, TimeoutError):
        return None


def topic_configs(
    admin: AdminClient, topics: Collection[str], keys: Collection[str], timeout: float
) -> dict[str, dict[str, str] | None]:
    """These of each topic's settings, as far as it has them."""
    if not topics:
        return {}
    resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
    asked = admin.describe_configs(list(resources.values()), request_timeout=timeout)
    described = {topic: told(asked[resource], timeout) for topic, resource in resources.items()}
    return {
        topic: None if entries is None else {key: entries[key].value for key in keys if key in entries}
        for topic, entries in described.items()
    }


def record_limits(admin: AdminClient, topics: Collection[str], timeout: float) -> dict[str, int | None]:
    """The bytes that each topic takes as one batch, and so as one record."""
    found = topic_configs(admin, topics, ["max.message.bytes"], timeout)
    return {topic: int(config["max.message.bytes"]) if config else None for topic, config in found.items()}

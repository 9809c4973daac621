"""Questions to a broker about its topics and groups, and its answer: None where it will not tell, or is too old to.

Asks and waits; what to do without an answer is for those who ask.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

T = TypeVar("T")


def told(future: Future[T], timeout: float) -> T | None:
    """The answer, if it comes within `timeout` seconds."""
    try:
        return future.result(timeout)
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

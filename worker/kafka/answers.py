"""What a broker answers to an administrator's question: its word, or None where it will not tell or is too old to.

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


def record_limits(admin: AdminClient, topics: Collection[str], timeout: float) -> dict[str, int | None]:
    """The bytes that each topic takes as one batch, and so as one record."""
    resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
    asked = admin.describe_configs(list(resources.values()), request_timeout=timeout)
    found = {topic: told(asked[resource], timeout) or {} for topic, resource in resources.items()}
    return {
        topic: int(described["max.message.bytes"].value) if "max.message.bytes" in described else None
        for topic, described in found.items()
    }

"""Where an answer goes, and why it may never get there: the same for both guarantees."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

from worker.core.failures import KafkaFatal
from worker.kafka.client.errors import GONE

ANY_PARTITION = -1  # the partitioner's choice


def partition_of(topic: str, key: bytes | None, source: int, partitions: Mapping[str, int]) -> int:
    """The partition that a message goes to; `partitions` counts those of each topic, `source` is the request's own.

    An empty key goes by the request's partition too: not every client counts it as a key, order holds either way.
    """
    return ANY_PARTITION if key else source % partitions[topic]


def is_too_large(error: KafkaError) -> bool:
    """Whether it was refused for its size: nothing is sent that is too large for the limit we know."""
    return bool(error.code() == KafkaError.MSG_SIZE_TOO_LARGE)


def why_refused(topic: str | None, error: KafkaError) -> str:
    """Why a message for this topic will never be durable. The client refuses a topic not found for half a minute."""
    if error.code() in GONE:
        return f"topic {topic} was deleted, or made anew with fewer partitions: {error.str()}"
    if is_too_large(error):
        return (
            f"the broker refused a record for topic {topic} as too large: its max.message.bytes was lowered, or "
            "WORKER_KAFKA__MAX_MESSAGE_BYTES is more than it takes"
        )
    if error.code() == KafkaError.INVALID_RECORD:
        return (
            f"the broker refused a record for topic {topic}: {error.str()}; a compacted topic takes none without a key"
        )
    return f"the broker refused a record for topic {topic}: {error.str()}"


def broken(error: Exception) -> KafkaFatal:
    """A broken producer raises a `SystemError` around the `KafkaException` that has the reason (seen 2026)."""
    return KafkaFatal(f"the producer failed: {error.__cause__ or error}; start again")

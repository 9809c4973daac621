"""Where an answer goes, and why it may never get there. Both guarantees use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError

from worker.core.failures import KafkaFatal, ReplyRefused
from worker.kafka.client.errors import GONE

ANY_PARTITION = -1  # the partitioner's choice
# A message that the client let go of, for another reason that it tells as well.
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001 - librdkafka's own codes begin so

# By these a topic refuses what others take: it is gone or closed to us, or its settings say so.
_OF_TOPIC = GONE | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.POLICY_VIOLATION,
}


@dataclass(frozen=True, slots=True)
class Destinations:
    """The topics that are written to: how many partitions each has, which are compacted, and which requests name."""

    partitions: Mapping[str, int]
    compacted: frozenset[str] = frozenset()
    replies: frozenset[str] = frozenset()

    def without_key(self, topic: str, key: bytes | None, source: int, chosen: int | None) -> tuple[bytes | None, int]:
        """The key and the partition of a message that has no key, or an empty one: that of its request, `source`.

        Not every client counts an empty one as a key; order holds either way. A compacted topic takes no record without
        a key, so there it is empty: else one publisher without keys could end every worker.
        """
        partition = source % self.partitions[topic] if chosen is None else chosen
        return b"" if topic in self.compacted else key, partition

    def is_final(self, topic: str | None, error: KafkaError | None) -> bool:
        """Whether every answer like this one would be refused until a new start, which reads the topics anew.

        So it is with one that is too large, for a topic's limit was lowered; and with a topic that requests name, for
        it is gone or closed. `topic` None: the client does not say which.
        """
        if error is None:
            return False
        is_reply = bool(self.replies) if topic is None else topic in self.replies
        return error.code() == KafkaError.MSG_SIZE_TOO_LARGE or (is_reply and error.code() in _OF_TOPIC)

    def failure(self, why: str, topic: str | None, error: KafkaError | None) -> KafkaFatal:
        """The end of a worker that was refused so, which says whether it is the matter of one reply topic."""
        is_of_reply = topic in self.replies and error is not None and error.code() in _OF_TOPIC
        return ReplyRefused(why, topic) if topic is not None and is_of_reply else KafkaFatal(why)


def why_refused(topic: str | None, error: KafkaError) -> str:
    """Why a message for this topic will never be durable. The client refuses a topic not found for half a minute."""
    if error.code() in GONE:
        return f"topic {topic} was deleted, or made anew with fewer partitions: {error.str()}"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
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

"""Reads how and where a requester wants its answer: the encodings that it admits, the topic and partition it names.

An `accept` header is a list of content types and of the ranges `*/*` and `application/*`; weights mean nothing.
`reply-topic` is text and `reply-partition` a decimal number. Spring's templates send `kafka_replyTopic` and
`kafka_replyPartition`, four bytes, big-endian. If both are there, ours count. A client with a partition of its own need
not read the answers to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from worker.codecs.wire_contract import CONTENT_TYPES
from worker.core.failures import Reject
from worker.core.records import ReplyTo

TOPIC, PARTITION = "reply-topic", "reply-partition"
_TOPIC_IN_SPRING, _PARTITION_IN_SPRING = "kafka_replyTopic", "kafka_replyPartition"  # as Spring writes them
SPRING_TOPIC, SPRING_PARTITION = _TOPIC_IN_SPRING.lower(), _PARTITION_IN_SPRING.lower()
REPLY_NAMES = frozenset({TOPIC, PARTITION, SPRING_TOPIC, SPRING_PARTITION})

_MOST_DIGITS = 9  # Kafka numbers partitions with 32 bits, and no topic has a billion
_SPRING_BYTES = 4


@lru_cache(maxsize=64)  # publishers send few different values, each of at most 1 KiB
def admitted(accept: str, own: str) -> tuple[str, ...]:
    """Our content types that `accept` names, the request's `own` first; empty if it names none."""
    named = {item.partition(";")[0].strip().strip('"').lower() for item in accept.split(",")}
    taken = [name for name in CONTENT_TYPES if not named.isdisjoint({name, "application/*", "*/*"})]
    return tuple(sorted(taken, key=lambda name: name != own))


class ReplyTopics:
    """The topics that answers may go to, each with its number of partitions at the start."""

    def __init__(
        self, response_topic: str, partitions: Mapping[str, int], shut: Mapping[str, str] | None = None
    ) -> None:
        """`shut`: topics that requesters may name, but that get no answer, each with the reason."""
        self._response_topic = response_topic
        self._partitions = partitions
        self._shut = shut or {}

    def read(self, found: Mapping[str, bytes]) -> ReplyTo | None:
        """The place that these headers name for the answer, or None. `found` has their names in lower case.

        Raises `Reject` for a topic that is not allowed or is shut, and for a partition that the topic does not have.
        """
        topic = self._topic(found)
        number = _number(found)
        if number is None:
            return None if topic == self._response_topic else ReplyTo(topic, None)
        there = self._partitions.get(topic, 0)
        if not 0 <= number < there:
            name = PARTITION if PARTITION in found else _PARTITION_IN_SPRING
            raise Reject(
                f"{name}: there is no partition {number} of {topic}, which had {there} when the worker started"
            )
        return ReplyTo(topic, number)

    def _topic(self, found: Mapping[str, bytes]) -> str:
        value = found.get(TOPIC, found.get(SPRING_TOPIC))
        if value is None:
            return self._response_topic
        topic = value.decode(errors="replace")
        if topic != self._response_topic and topic not in self._partitions:
            name = TOPIC if TOPIC in found else _TOPIC_IN_SPRING
            if topic in self._shut:
                raise Reject(
                    f"{name}: answers cannot go to {topic}: {self._shut[topic]}; once that is mended, start the "
                    "workers again"
                )
            raise Reject(
                f"{name}: answers may not go to {topic[:249]!r}; the worker's KAFKA__REPLY_TOPICS does not name it"
            )
        return topic


def _number(found: Mapping[str, bytes]) -> int | None:
    if PARTITION in found:
        digits = found[PARTITION].strip()
        if not digits.isdigit() or len(digits) > _MOST_DIGITS:
            raise Reject(f"{PARTITION}: expected a partition's number, got {digits[:60]!r}")
        return int(digits)
    value = found.get(SPRING_PARTITION)
    if value is None:
        return None
    if len(value) != _SPRING_BYTES:
        raise Reject(f"{_PARTITION_IN_SPRING}: expected {_SPRING_BYTES} bytes, big-endian, got {len(value)}")
    return int.from_bytes(value, signed=True)

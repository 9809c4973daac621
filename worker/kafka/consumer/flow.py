"""The client's messages on their way into the loop: made into records, or not fetched at all.

Every record of every topic passes `to_records`, so that function is written to be fast. Every record needs the map from
topic and number to `Partition` anyway. So the map also says which partitions flow, that is, may hand out records: a
partition that does not flow is missing from it, and the failed look-up tells. A partition that flows costs no check.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from operator import length_hint, methodcaller
from typing import cast

from confluent_kafka import Consumer, Message, TopicPartition

from worker.core.records import UNREADABLE_HEADERS, Headers, Partition, Record

# `Message.headers()` of confluent-kafka 2.16 raises these for a name that is not UTF-8; Kafka allows any bytes. It sets
# the exception and still returns a list. In code that ran often Python does not check for an exception after each call:
# the next call that checks raises it. In `to_records` that is `tuple.__new__`, before the headers are used. Using that
# list, or asking for it again, ends the process (SIGSEGV, seen 2026).
_NO_UTF8 = (SystemError, UnicodeError)
_headers = methodcaller("headers")  # Python always checks for an exception after this call


class _Numbers(dict[int, Partition]):
    """The flowing partitions of one topic, by number. `met` holds all partitions seen, flowing or not."""

    def __init__(self, topic: str, strangers: set[Partition]) -> None:
        self.met: dict[int, Partition] = {}
        self._topic = topic
        self._strangers = strangers

    def __missing__(self, number: int) -> Partition:
        partition = self.met.setdefault(number, Partition(self._topic, number))
        self._strangers.add(partition)
        return partition


class Flowing(dict[str, _Numbers]):
    """`flowing[topic][number]` is the partition. A look-up of one that does not flow also adds it to `strangers`."""

    def __init__(self) -> None:
        self.strangers: set[Partition] = set()

    def __missing__(self, topic: str) -> _Numbers:
        return self.setdefault(topic, _Numbers(topic, self.strangers))

    def named(self, topic: str, number: int) -> Partition:
        """The partition with this topic and number, flowing or not."""
        met = self[topic].met
        return met.get(number) or met.setdefault(number, Partition(topic, number))

    def let(self, partition: Partition) -> None:
        self[partition.topic][partition.number] = partition

    def stop(self, partition: Partition) -> None:
        """Stop the partition's flow: from now on it is a stranger."""
        self[partition.topic].pop(partition.number, None)

    def has(self, partition: Partition) -> bool:
        return partition.number in self[partition.topic]


def to_records(messages: Sequence[Message], flowing: Flowing) -> list[Record]:
    """Make records of the messages without an error: 0.3 µs each, by two dicts and without `Record`'s constructor."""
    coming = iter(messages)
    try:
        return [
            tuple.__new__(
                Record,
                (
                    flowing[m.topic()][m.partition()],  # type: ignore[index]  # what is no error names its partition
                    m.offset(),
                    m.key(),
                    m.value(),
                    m.headers() or (),
                    at if (at := m.timestamp()[1]) >= 0 else None,
                    None,
                ),
            )
            for m in coming
            if m.error() is None
        ]
    except _NO_UTF8:
        odd = len(messages) - length_hint(coming) - 1
        record = _without_headers(messages[odd], flowing)
        return [*to_records(messages[:odd], flowing), record, *to_records(messages[odd + 1 :], flowing)]


def headers_of(message: Message) -> Headers:
    """The headers, or `UNREADABLE_HEADERS` if the client's Python binding cannot read them. Call it once a message."""
    try:
        return cast("Headers", _headers(message) or ())
    except _NO_UTF8:
        return UNREADABLE_HEADERS


def _without_headers(message: Message, flowing: Flowing) -> Record:
    partition, offset, at = partition_of(message, flowing), cast("int", message.offset()), message.timestamp()[1]
    return Record(partition, offset, message.key(), message.value(), UNREADABLE_HEADERS, at if at >= 0 else None)


def partition_of(message: Message, flowing: Flowing) -> Partition:
    """The partition of a message, even if the message is an error."""
    topic, number = message.topic(), message.partition()
    assert topic is not None
    assert number is not None
    return flowing[topic][number]


class By(Enum):
    GATES = "gates"
    SPOILED = "spoiled"


class Pauses:
    """The partitions that the client does not fetch, and who stopped each. Owned by the source.

    The client remembers less: a new partition arrives unpaused, and one that comes back arrives as it left.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._stopped: dict[Partition, set[By]] = {}
        self.is_general = False

    def stop(self, partition: Partition, by: By) -> None:
        reasons = self._stopped.setdefault(partition, set())
        if not reasons:
            self._consumer.pause([TopicPartition(*partition)])
        reasons.add(by)

    def release(self, partition: Partition, by: By) -> None:
        """Fetch the partition again, if nothing else stops it."""
        reasons = self._stopped.get(partition, set())
        if by not in reasons:
            return
        reasons.remove(by)
        if not reasons:
            del self._stopped[partition]
            if not self.is_general:
                self._consumer.resume([TopicPartition(*partition)])

    def is_stopped_only(self, partition: Partition, by: By) -> bool:
        return not self.is_general and self._stopped.get(partition) == {by}

    def is_fetched(self, partition: Partition) -> bool:
        return not self.is_general and partition not in self._stopped

    def settle(self) -> None:
        """Tell the client again, for each assigned partition, whether to fetch it."""
        held = self._consumer.assignment()
        self._consumer.pause([at for at in held if self._is_stopped(at)])
        self._consumer.resume([at for at in held if not self._is_stopped(at)])

    def forget(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._stopped.pop(partition, None)

    def _is_stopped(self, at: TopicPartition) -> bool:
        return self.is_general or bool(self._stopped.get(Partition(at.topic, at.partition)))

"""From the client's messages to records: the one place that every record of every topic passes, so it is written to be
fast. Errors among the messages are the source's to deal with.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Message

from worker.core.records import Partition, Record
from worker.kafka.flowing import Flowing


def to_records(messages: Iterable[Message], flowing: Flowing) -> list[Record]:
    """The records among the messages, 0.3 µs each with 1 KiB.

    `tuple.__new__` saves 0.1 µs over the class's own constructor, two dicts 0.03 over a pair as key.
    """
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
        for m in messages
        if m.error() is None
    ]


def partition_of(message: Message, flowing: Flowing) -> Partition:
    """Which partition an error is about that came in a record's stead."""
    topic, number = message.topic(), message.partition()
    assert topic is not None
    assert number is not None
    return flowing[topic][number]

"""What the clients say of themselves once a second: whether brokers answer, how far behind we are, what cannot leave.

librdkafka says it as JSON in a callback, whatever the load; nothing here is done per record. Pure: reads one such text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from worker.core.records import Partition

# librdkafka's counts for a partition it knows by name only.
_NO_PARTITION = "-1"


class Watcher(Protocol):
    """Who is told, by the loop's thread."""

    def consumer_seen(self, connections: int, lag: Mapping[Partition, int]) -> None: ...
    def producer_seen(self, connections: int, undelivered: Mapping[str, int]) -> None: ...


class ConsumerStatistics(NamedTuple):
    """`connections` are open ones to brokers; `lag` counts offsets from what is committed to the end last seen.

    The end comes with each fetch: while fetching is paused, or its broker away, it stays as it was.
    """

    coordinator: str
    connections: int
    lag: Mapping[Partition, int]


class ProducerStatistics(NamedTuple):
    """`undelivered` counts, for each topic, the messages that no broker has acknowledged."""

    connections: int
    undelivered: Mapping[str, int]


def read_consumer(text: str) -> ConsumerStatistics:
    """What the consumer said."""
    said = json.loads(text)
    lag = {
        Partition(topic, int(number)): behind
        for topic, numbers in _partitions(said).items()
        for number, found in numbers.items()
        if (behind := _behind(found)) is not None
    }
    return ConsumerStatistics(said.get("cgrp", {}).get("state", ""), _connections(said), lag)


def read_producer(text: str) -> ProducerStatistics:
    """What the producer said."""
    said = json.loads(text)
    undelivered = {
        topic: sum(found["msgq_cnt"] + found["xmit_msgq_cnt"] + found["msgs_inflight"] for found in numbers.values())
        for topic, numbers in _partitions(said).items()
    }
    return ProducerStatistics(_connections(said), undelivered)


def _partitions(said: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        topic: {number: found for number, found in told["partitions"].items() if number != _NO_PARTITION}
        for topic, told in said.get("topics", {}).items()
    }


def _behind(found: Mapping[str, Any]) -> int | None:
    """None where the partition is not read by us, or its end is not known yet.

    Until the group has committed anything, the position is the first record not handed to us.
    """
    end: int = found["ls_offset"]  # of committed transactions: what lies beyond may not be read yet
    if found["fetch_state"] != "active" or end < 0:
        return None
    positions: list[int] = [found["committed_offset"], found["app_offset"], found["next_offset"]]
    return max(0, end - next((at for at in positions if at >= 0), end))


def _connections(said: Mapping[str, Any]) -> int:
    return sum(broker["state"] == "UP" for broker in said.get("brokers", {}).values())

"""What the clients say of themselves once a second: whether brokers answer, how far we are.

librdkafka says it as JSON in a callback, whatever the load; nothing here is done per record. Pure: reads one such text.
`producer/unacknowledged.py` reads what the producer says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from worker.core.records import Partition, Standing
from worker.kafka.client.log import ClientLog

# librdkafka's counts for a partition it knows by name only.
_NO_PARTITION = "-1"

# Seconds of waiting for a quota, said within one, that are worth a line.
_THROTTLED = 0.2

# Its coordinator is listed among its brokers, under that name, besides the broker that it is.
_BY_ROLE = "logical"


class ClientWatcher(Protocol):
    """Hears it, in the loop's thread."""

    def consumer_seen(self, connections: int, standings: Mapping[Partition, Standing]) -> None: ...
    def place_lost(self, partition: Partition, lost: int, first: int) -> None: ...
    def topics_absent(self, topics: Sequence[str]) -> None: ...
    def producer_seen(self, connections: int, undelivered: Mapping[str, int]) -> None: ...
    def throttled(self, client: str, seconds: float) -> None: ...


class ConsumerStatistics(NamedTuple):
    """`connections` are open ones to brokers, `brokers` those it could connect to, `standings` of what is read.

    A partition's end comes with each fetch: while fetching is paused, or its broker away, it stays as it was. What a
    transaction commits the consumer never hears of.
    """

    coordinator: str
    connections: int
    standings: Mapping[Partition, Standing]
    brokers: int
    throttled: float = 0.0  # seconds of the last one


def read_consumer(text: str) -> ConsumerStatistics:
    said = json.loads(text)
    standings = {
        Partition(topic, int(number)): standing
        for topic, numbers in partitions_of(said).items()
        for number, found in numbers.items()
        if (standing := _standing(found)) is not None
    }
    coordinator = said.get("cgrp", {}).get("state", "")
    return ConsumerStatistics(coordinator, connections_of(said), standings, brokers_of(said), throttled_of(said))


def partitions_of(said: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What is said of each partition, by topic and by its number, which is a string."""
    return {
        topic: {number: found for number, found in told["partitions"].items() if number != _NO_PARTITION}
        for topic, told in said.get("topics", {}).items()
    }


def connections_of(said: Mapping[str, Any]) -> int:
    return sum(broker["state"] == "UP" for broker in said.get("brokers", {}).values())


def brokers_of(said: Mapping[str, Any]) -> int:
    """How many the client knows, from its settings or from one of them."""
    return sum(broker.get("source") != _BY_ROLE for broker in said.get("brokers", {}).values())


def throttled_of(said: Mapping[str, Any]) -> float:
    """How long a broker told the client to wait for its quota since the last text, seconds. May be more than passed."""
    times = [broker.get("throttle", {}).get("sum", 0) for broker in said.get("brokers", {}).values()]
    return max(times, default=0) / 1000


def tell_throttled(watcher: ClientWatcher, log: ClientLog, client: str, seconds: float) -> None:
    """Neither the client nor the brokers' logs say a word of it."""
    if seconds > 0:
        watcher.throttled(client, seconds)
    if seconds >= _THROTTLED:
        log.tell(
            f"throttled {client}",
            f"a quota of the brokers lets the {client} wait, {seconds:.1f} s by what they said within a second; "
            "kafka-configs.sh --describe --entity-type clients, or users, shows it",
        )


def _standing(found: Mapping[str, Any]) -> Standing | None:
    """None where the partition is not read by us, or its end is not known yet.

    Until the group has committed anything, the position is the first record not handed to us.
    """
    end: int = found["ls_offset"]  # of committed transactions: what lies beyond may not be read yet
    if found["fetch_state"] != "active" or end < 0:
        return None
    positions: list[int] = [found["committed_offset"], found["app_offset"], found["next_offset"]]
    return Standing(next((at for at in positions if at >= 0), end), end)

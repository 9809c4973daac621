"""The clients' statistics, once a second: whether brokers answer, how far we are.

librdkafka tells them as JSON in a callback, whatever the load; nothing here is done per record. Pure: reads one text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from worker.core.records import Partition, Standing
from worker.core.stalls import Reach, Stall
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
    def stalled(self, stalls: Mapping[Partition, Stall]) -> None: ...
    def place_lost(self, partition: Partition, lost: int, first: int) -> None: ...
    def topics_absent(self, topics: Sequence[str]) -> None: ...
    def topics_counted(self, partitions: Mapping[str, int]) -> None: ...
    def producer_seen(self, connections: int, undelivered: Mapping[str, int]) -> None: ...
    def throttled(self, client: str, seconds: float) -> None: ...


class ConsumerStatistics(NamedTuple):
    """`connections` are open ones to brokers, `brokers` all that the client knows; the rest is about what is read.

    A partition's end comes with each fetch: while fetching is paused, or its broker away, it stays as it was. The
    consumer never hears of what a transaction commits.
    """

    coordinator: str
    connections: int
    standings: Mapping[Partition, Standing]
    brokers: int
    reaches: Mapping[Partition, Reach]
    throttled: float = 0.0  # seconds of the last one


def read_consumer(text: str) -> ConsumerStatistics:
    said = json.loads(text)
    read = {
        Partition(topic, int(number)): found
        for topic, numbers in partitions_of(said).items()
        for number, found in numbers.items()
        if found["fetch_state"] == "active" and found["ls_offset"] >= 0
    }
    standings = {partition: _standing(found) for partition, found in read.items()}
    reached = {partition: found for partition, found in read.items() if found["next_offset"] >= 0}
    reaches = _reaches(reached, said) if reached else {}
    coordinator = said.get("cgrp", {}).get("state", "")
    throttled = throttled_of(said)
    return ConsumerStatistics(coordinator, connections_of(said), standings, brokers_of(said), reaches, throttled)


def unparsed_at(text: str, partition: Partition, position: int) -> int | None:
    """How many batches the client could not parse so far; None where it does not stand at this position.

    It counts an answer that was cut short, too: that says something only of a client that nothing comes to.
    """
    said = json.loads(text)
    found = partitions_of(said).get(partition.topic, {}).get(str(partition.number), {})
    if found.get("fetch_state") != "active" or found["next_offset"] != position:
        return None
    return sum(int(broker["rxpartial"]) for broker in said["brokers"].values())


def partitions_of(said: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The statistics of each partition, by topic and by its number, which is a string."""
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
    """Seconds that a broker told the client to wait for its quota since the last text. May be more than passed."""
    times = [broker.get("throttle", {}).get("sum", 0) for broker in said.get("brokers", {}).values()]
    return max(times, default=0) / 1000


def tell_throttled(watcher: ClientWatcher, log: ClientLog, client: str, seconds: float) -> None:
    """Say what neither the client nor the brokers' logs say."""
    if seconds > 0:
        watcher.throttled(client, seconds)
    if seconds >= _THROTTLED:
        log.tell(
            f"throttled {client}",
            f"a quota of the brokers lets the {client} wait, {seconds:.1f} s by what they said within a second; "
            "kafka-configs.sh --describe --entity-type clients, or users, shows it",
        )


def _standing(found: Mapping[str, Any]) -> Standing:
    """Until the group has committed anything, the position is the first record not handed to us."""
    end: int = found["ls_offset"]  # of committed transactions: what lies beyond may not be read yet
    positions: list[int] = [found["committed_offset"], found["app_offset"], found["next_offset"]]
    return Standing(next((at for at in positions if at >= 0), end), end)


def _reaches(read: Mapping[Partition, Mapping[str, Any]], said: Mapping[str, Any]) -> dict[Partition, Reach]:
    """The place up to which each partition is read. A coordinator's answers bring no records, and are left out.

    `fetchq_cnt` is the length of the one queue of all partitions (librdkafka 2.16; measured 2026-11), and while it is
    long the client fetches none of them.
    """
    brokers = said["brokers"].values()
    answers = {broker["nodeid"]: broker["rx"] for broker in brokers if broker.get("source") != _BY_ROLE}
    return {
        partition: Reach(
            found["next_offset"],
            found["ls_offset"],
            found["hi_offset"],
            not found["fetchq_cnt"],
            answers.get(found["broker"], 0),
        )
        for partition, found in read.items()
    }

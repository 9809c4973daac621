"""The clients' statistics, once a second: open connections, positions in partitions, unacknowledged messages.

librdkafka gives them as JSON to a callback, at any load. Nothing here runs per record.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from worker.core.records import Partition, Standing
from worker.core.stalls import Reach, Stall
from worker.kafka.client.errors import ClientLog

# librdkafka's entry for messages without a partition.
_NO_PARTITION = "-1"
# The source of a coordinator: the client lists it as one more broker, next to the broker that it is.
_BY_ROLE = "logical"
# Seconds without an acknowledgement until a line is logged. A leader that moves takes less.
SILENCE = 30.0


class ClientWatcher(Protocol):
    """Receives the numbers, in the loop's thread."""

    def consumer_seen(self, connections: int, standings: Mapping[Partition, Standing]) -> None: ...
    def stalled(self, stalls: Mapping[Partition, Stall]) -> None: ...
    def offset_lost(self, partition: Partition, lost: int, first: int) -> None: ...
    def topics_absent(self, topics: Sequence[str]) -> None: ...
    def topics_counted(self, partitions: Mapping[str, int]) -> None: ...
    def producer_seen(self, connections: int, undelivered: Mapping[str, int]) -> None: ...
    def throttled(self, client: str, seconds: float) -> None: ...


class ConsumerStatistics(NamedTuple):
    """One report. `connections` counts open ones, `brokers` all known ones. Only a fetch updates a partition's end."""

    coordinator: str
    connections: int
    standings: Mapping[Partition, Standing]
    brokers: int
    reaches: Mapping[Partition, Reach]
    throttled: float  # seconds since the last report


def read_consumer(text: str) -> ConsumerStatistics:
    said = json.loads(text)
    read = {
        Partition(topic, int(number)): found
        for topic, numbers in _partitions(said).items()
        for number, found in numbers.items()
        if found["fetch_state"] == "active" and found["ls_offset"] >= 0
    }
    return ConsumerStatistics(
        coordinator=said.get("cgrp", {}).get("state", ""),
        connections=_connections(said),
        standings={partition: _standing(found) for partition, found in read.items()},
        brokers=_brokers(said),
        reaches=_reaches(read, said),
        throttled=_throttled(said),
    )


def unparsed_at(text: str, partition: Partition, position: int) -> int | None:
    """The number of batches, or truncated answers, that the client could not parse; None if it is not at `position`."""
    said = json.loads(text)
    found = _partitions(said).get(partition.topic, {}).get(str(partition.number), {})
    if found.get("fetch_state") != "active" or found["next_offset"] != position:
        return None
    return sum(int(broker["rxpartial"]) for broker in said["brokers"].values())


class Unacknowledged:
    """Tells the watcher each topic's unacknowledged messages, and logs a producer that gets no acknowledgement.

    The client numbers the messages of a partition: `msgs` were produced, and all up to `acked_msgid` are acknowledged.
    The difference may count messages that it has no more, so `msg_cnt`, its messages of all topics, is the upper bound.
    """

    def __init__(
        self, watcher: ClientWatcher | None, log: ClientLog, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._watcher = watcher
        self._log = log
        self._clock = clock
        self._acknowledged, self._since = -1, 0.0  # messages, and since when this number stands

    def heard(self, text: str) -> int | None:
        """Tell the watcher. Returns the number of known brokers, None without a watcher or for an odd text."""
        if self._watcher is None:
            return None
        try:
            return self._told(json.loads(text), self._watcher)
        except Exception as error:  # noqa: BLE001  # no answer should be lost for a number on a page
            self._log.tell("statistics", f"the producer's statistics are not understood: {error!r}")
            return None

    def _told(self, said: Mapping[str, Any], watcher: ClientWatcher) -> int:
        topics = {topic: list(partitions.values()) for topic, partitions in _partitions(said).items()}
        outstanding = said.get("msg_cnt", 0)
        undelivered = {
            topic: min(outstanding, sum(at["msgs"] - at["acked_msgid"] for at in partitions))
            for topic, partitions in topics.items()
        }
        watcher.producer_seen(_connections(said), undelivered)
        watcher.throttled("producer", _throttled(said))
        self._look_for_silence(sum(at["acked_msgid"] for of in topics.values() for at in of), undelivered)
        return _brokers(said)

    def _look_for_silence(self, acknowledged: int, undelivered: Mapping[str, int]) -> None:
        now, waiting = self._clock(), {topic: count for topic, count in undelivered.items() if count}
        if not waiting or acknowledged != self._acknowledged:
            self._acknowledged, self._since = acknowledged, now
        elif now - self._since >= SILENCE:
            self._since = now
            self._log.tell(
                "unacknowledged",
                f"no message was acknowledged for {SILENCE:.0f} s, and some wait for {', '.join(sorted(waiting))}: are "
                "their brokers up, with as many replicas in sync as min.insync.replicas asks for? kafka-topics.sh "
                "--describe --under-min-isr-partitions",
            )


def _partitions(said: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The statistics of each partition, by topic and by number, which is a string."""
    return {
        topic: {number: found for number, found in told["partitions"].items() if number != _NO_PARTITION}
        for topic, told in said.get("topics", {}).items()
    }


def _connections(said: Mapping[str, Any]) -> int:
    return sum(broker["state"] == "UP" for broker in said.get("brokers", {}).values())


def _brokers(said: Mapping[str, Any]) -> int:
    """The number of brokers that the client knows, from its settings or from another broker."""
    return sum(broker.get("source") != _BY_ROLE for broker in said.get("brokers", {}).values())


def _throttled(said: Mapping[str, Any]) -> float:
    """Seconds since the last text that a broker's quota told the client to wait. May exceed the time that passed."""
    times = [broker.get("throttle", {}).get("sum", 0) for broker in said.get("brokers", {}).values()]
    return max(times, default=0) / 1000


def _standing(found: Mapping[str, Any]) -> Standing:
    """The group's position and the end. Before the first commit, the position is the first record not handed to us."""
    end: int = found["ls_offset"]  # the last stable offset: records beyond it may not be read yet
    positions: list[int] = [found["committed_offset"], found["app_offset"], found["next_offset"]]
    return Standing(next((at for at in positions if at >= 0), end), end)


def _reaches(read: Mapping[Partition, Mapping[str, Any]], said: Mapping[str, Any]) -> dict[Partition, Reach]:
    """The offset up to which each partition is read. A coordinator's answers bring no records, so they do not count.

    `fetchq_cnt` is the length of one queue for all: while it is long the client fetches nothing (librdkafka 2.16).
    """
    brokers = said.get("brokers", {}).values()
    answers = {broker["nodeid"]: broker["rx"] for broker in brokers if broker.get("source") != _BY_ROLE} if read else {}
    return {
        partition: Reach(
            found["next_offset"],
            found["ls_offset"],
            found["hi_offset"],
            not found["fetchq_cnt"],
            answers.get(found["broker"], 0),
        )
        for partition, found in read.items()
        if found["next_offset"] >= 0
    }

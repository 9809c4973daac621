"""Which topics owe a producer acknowledgements, by the figures that its client tells once a second.

The client numbers the messages of a partition: `msgs` were produced, and all up to `acked_msgid` are acknowledged. It
drops both where it is told nothing more, so `msg_cnt`, its messages of all topics, bounds the difference.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import NamedTuple

from worker.kafka.client.log import ClientLog
from worker.kafka.client.statistics import (
    ClientWatcher,
    brokers_of,
    connections_of,
    partitions_of,
    tell_throttled,
    throttled_of,
)

# Seconds without an acknowledgement until that is logged. A leader that moves takes less.
SILENCE = 30.0


class ProducerStatistics(NamedTuple):
    """Open connections, known brokers, and messages that no broker has acknowledged."""

    connections: int
    brokers: int
    outstanding: int


class Unacknowledged:
    """Tells the watcher what waits, and logs topics that take nothing: the client is silent of them."""

    def __init__(
        self, watcher: ClientWatcher | None, log: ClientLog, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._watcher = watcher
        self._log = log
        self._clock = clock
        self._since: dict[str, tuple[int, float]] = {}  # what a topic had acknowledged, and since when it is no more

    def heard(self, text: str) -> ProducerStatistics | None:
        """The client's figures; None without a watcher, and for a text that is not understood. Raises nothing."""
        if self._watcher is None:
            return None
        try:
            return self._told(text, self._watcher)
        except Exception as error:  # noqa: BLE001  # no answer should be lost for a number on a page
            self._log.tell("statistics", f"the producer's statistics are not understood: {error!r}")
            return None

    def _told(self, text: str, watcher: ClientWatcher) -> ProducerStatistics:
        said = json.loads(text)
        outstanding: int = said.get("msg_cnt", 0)
        undelivered: dict[str, int] = {}
        for topic, partitions in partitions_of(said).items():
            produced, acknowledged = (sum(at[count] for at in partitions.values()) for count in ("msgs", "acked_msgid"))
            undelivered[topic] = min(outstanding, produced - acknowledged)
            self._look_for_silence(topic, undelivered[topic], acknowledged)
        connections = connections_of(said)
        watcher.producer_seen(connections, undelivered)
        tell_throttled(watcher, self._log, "producer", throttled_of(said))
        return ProducerStatistics(connections, brokers_of(said), outstanding)

    def _look_for_silence(self, topic: str, undelivered: int, acknowledged: int) -> None:
        now = self._clock()
        before, since = self._since.get(topic, (acknowledged, now))
        if not undelivered or acknowledged != before:
            since = now
        elif now - since >= SILENCE:
            since = now
            self._log.tell(
                f"unacknowledged {topic}",
                f"topic {topic} has acknowledged nothing for {SILENCE:.0f} s, and {undelivered} messages wait; are its "
                "brokers up, and as many replicas in sync as its min.insync.replicas asks for? kafka-topics.sh "
                "--describe --under-min-isr-partitions; or is a message larger than the broker's "
                "socket.request.max.bytes?",
            )
        self._since[topic] = acknowledged, since

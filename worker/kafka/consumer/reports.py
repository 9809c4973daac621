"""The consumer's statistics and log, told to the watcher: how far behind it is, and requests deleted before it read
them.

The client reports on itself once a second. Deleted requests are the only ones that are never answered, and there it
says nothing of them: it goes on where the reset policy says, and a line of its log alone names the place that it left
(librdkafka 2.16), not always the one where it goes on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from worker.core.records import Partition
from worker.kafka.client.errors import words_of
from worker.kafka.client.log import ClientLog
from worker.kafka.client.statistics import ClientWatcher, ConsumerStatistics, read_consumer, tell_throttled

_LEFT = re.compile(r"(?P<topic>[\w.-]+) \[(?P<number>\d+)\]: offset reset \(at offset (?P<offset>\d+)")

# The loop stands still meanwhile. The broker answers behind the fetch before ours: after `fetch.wait.max.ms`, 0.5 s.
ASK_TIMEOUT = 1.0
ASK_AGAIN_AFTER = 10.0


class Reports:
    """Hears the consumer's statistics, and is the logger of it. Owned by the source, and outlives one consumer."""

    def __init__(
        self, watcher: ClientWatcher | None, log: ClientLog, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.watcher = watcher
        self._log = log
        self._clock = clock
        self._lost: dict[Partition, int] = {}  # the place that was left, until the watcher has it
        self._ask_at = 0.0

    def log(self, level: int, template: str, facility: str, client: str, text: str) -> None:
        """Called by the client, in the thread that polls it. All is passed on."""
        self._log.log(level, template, facility, client, text)
        if facility == "OFFSET" and (left := _LEFT.search(text)) is not None:
            self._lost.setdefault(Partition(left["topic"], int(left["number"])), int(left["offset"]))

    def heard(self, consumer: Consumer, report: str, begun: Callable[[Partition], int]) -> ConsumerStatistics | None:
        """Tell the watcher. Returns what the report says, None for one not understood; raises nothing.

        `begun`: where the group stood when the partition was assigned. The client still has its own last commit of a
        partition that comes back, whatever others did meanwhile. An offset beyond the end is of records that are gone.
        """
        try:
            seen = read_consumer(report)
            if self.watcher is not None:
                standings = {
                    partition: at._replace(next_offset=max(at.next_offset, begun_at)) if begun_at <= at.end else at
                    for partition, at in seen.standings.items()
                    for begun_at in (begun(partition),)
                }
                self.watcher.consumer_seen(seen.connections, standings)
                tell_throttled(self.watcher, self._log, "consumer", seen.throttled)
        except Exception as error:  # noqa: BLE001  # no request waits for a number on a page
            self._log.tell("statistics", f"the consumer's statistics are not understood: {error!r}")
            return None
        if self.watcher is not None and self._lost and self._clock() >= self._ask_at:
            self._tell_lost(consumer, self.watcher)
        return seen

    def _tell_lost(self, consumer: Consumer, watcher: ClientWatcher) -> None:
        """Tell of the places that were lost since, with the offset at which each one's log begins now."""
        found: list[TopicPartition] = []
        try:
            begins = [TopicPartition(*partition, OFFSET_BEGINNING) for partition in self._lost]
            found = consumer.offsets_for_times(begins, ASK_TIMEOUT)
        except (KafkaException, RuntimeError) as error:  # RuntimeError when the consumer is closed
            self._log.tell("begin", f"the broker does not tell where partitions begin: {words_of(error)}")
        for at in found:
            if at.error is None:
                partition = Partition(at.topic, at.partition)
                watcher.place_lost(partition, self._lost.pop(partition), at.offset)
        self._ask_at = self._clock() + (ASK_AGAIN_AFTER if self._lost else 0.0)

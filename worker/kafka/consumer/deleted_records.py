"""Requests that were deleted before they were read: by retention, or by an operator.

They are the only ones that are never answered, so the watcher gets their number. The client goes on where the reset
policy says, and says so in a line of its log alone (librdkafka 2.16), which names the place that it left and not always
the one where it goes on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from worker.core.records import Partition
from worker.kafka.client.errors import words_of
from worker.kafka.client.log import ClientLog
from worker.kafka.client.statistics import Watcher

_LEFT = re.compile(r"(?P<topic>[\w.-]+) \[(?P<number>\d+)\]: offset reset \(at offset (?P<offset>\d+)")

# The loop stands still meanwhile. The broker answers behind the fetch before ours: after `fetch.wait.max.ms`, 0.5 s.
ASK_TIMEOUT = 1.0
ASK_AGAIN_AFTER = 10.0


class DeletedRecords:
    """What the client's log says of them, until the watcher has it. The logger of the source's consumer."""

    def __init__(self, log: ClientLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lost: dict[Partition, int] = {}
        self._ask_at = 0.0

    def log(self, level: int, template: str, facility: str, client: str, text: str) -> None:
        """Called by the client, in the thread that polls it. All is passed on."""
        self._log.log(level, template, facility, client, text)
        if facility == "OFFSET" and (left := _LEFT.search(text)) is not None:
            self._lost.setdefault(Partition(left["topic"], int(left["number"])), int(left["offset"]))

    def tell(self, consumer: Consumer, watcher: Watcher) -> None:
        """Tell of those that were lost since, with the offset at which each one's log begins now."""
        if not self._lost or self._clock() < self._ask_at:
            return
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

"""Commits of the source's own: they move no offset, and note beside it what is about to happen there.

A partition has one on its way at a time, so that none overtakes another. And none is sent while the delivery may commit
something of the partition: a mark that arrived after such a commit would take it back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from worker.core.records import Partition
from worker.kafka.offsets.attempts import Attempts

# A mark without a result for so long is sent again: on the same connection, where the later one is served later. The
# client itself gives up on a coordinator after 45.9 s under KIP-848 (measured), and records wait for this.
PATIENCE = 10.0

# After a failure one that must succeed goes again so much later, seconds.
RETRY_AFTER = 0.1


class Mark(NamedTuple):
    """What is committed of one partition."""

    offset: int
    attempts: Attempts


class Marks:
    """What is under way, and what the group took last. Owned by the source."""

    def __init__(self, consumer: Consumer, clock: Callable[[], float] = time.monotonic) -> None:
        self._consumer = consumer
        self._clock = clock
        self._under_way: dict[Partition, tuple[Mark, float]] = {}  # and when it is taken for lost
        self._unheard: Counter[Partition] = Counter()  # also those of earlier assignments
        self._taken: dict[Partition, Mark] = {}
        self._not_before: dict[Partition, float] = {}

    def send(self, partition: Partition, mark: Mark) -> None:
        """Begin an asynchronous commit; never raises."""
        position = TopicPartition(*partition, mark.offset, str(mark.attempts))
        try:
            self._consumer.commit(offsets=[position], asynchronous=True)
        except (KafkaException, RuntimeError):  # it never left
            self._not_before[partition] = self._clock() + RETRY_AFTER
        else:
            self._under_way[partition] = mark, self._clock() + PATIENCE
            self._unheard[partition] += 1

    def note(self, partition: Partition, mark: Mark) -> bool:
        """Commit this, again after a failure. To be called until it is so: True."""
        if self._taken.get(partition) == mark:
            return True
        if not self.is_under_way([partition]) and self._clock() >= self._not_before.get(partition, 0.0):
            self.send(partition, mark)
        return False

    def heard(self, partition: Partition, mark: Mark, *, is_taken: bool) -> None:
        """A result came. The last one sent decides, for an earlier one may look just like it."""
        self._unheard[partition] -= 1
        if self._unheard[partition] > 0 or self._under_way.pop(partition, (None,))[0] != mark:
            return
        if is_taken:
            self._taken[partition] = mark
        else:
            self._not_before[partition] = self._clock() + RETRY_AFTER

    def is_under_way(self, partitions: Collection[Partition]) -> bool:
        """Whether one of these has a commit of ours that was not heard of, and may still arrive."""
        if not self._under_way:
            return False
        now = self._clock()
        return any(p in self._under_way and now < self._under_way[p][1] for p in partitions)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """They are not ours any more."""
        for partition in partitions:
            for of in (self._under_way, self._taken, self._not_before):
                of.pop(partition, None)

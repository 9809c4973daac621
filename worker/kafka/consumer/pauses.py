"""Which partitions the client does not fetch, and what stops each.

A partition is fetched when nothing stops it: the loop may stop all of them or one, the source those that it waits for
or that have a batch that cannot be read.
The client itself remembers less: new partitions arrive unpaused, and ones that come back arrive as they left.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from confluent_kafka import Consumer, TopicPartition

from worker.core.records import Partition


class By(Enum):
    LOOP = "loop"
    SOURCE = "source"
    UNREADABLE = "unreadable"


class Pauses:
    """What is stopped. Owned by the source."""

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
        """Fetch it again, if nothing else stops it."""
        reasons = self._stopped.get(partition, set())
        if by not in reasons:
            return
        reasons.remove(by)
        if not reasons:
            del self._stopped[partition]
            if not self.is_general:
                self._consumer.resume([TopicPartition(*partition)])

    def is_stopped_only(self, partition: Partition, by: By) -> bool:
        """Whether it would be fetched but for this one."""
        return not self.is_general and self._stopped.get(partition) == {by}

    def is_fetched(self, partition: Partition) -> bool:
        """Whether nothing stops it."""
        return not self.is_general and partition not in self._stopped

    def settle(self) -> None:
        """Say it again of every partition held."""
        held = self._consumer.assignment()
        self._consumer.pause([at for at in held if self._is_stopped(at)])
        self._consumer.resume([at for at in held if not self._is_stopped(at)])

    def forget(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._stopped.pop(partition, None)

    def _is_stopped(self, at: TopicPartition) -> bool:
        return self.is_general or bool(self._stopped.get(Partition(at.topic, at.partition)))

"""Which partitions flow, kept in the map that every record passes through anyway.

A partition flows when its records may be handed out. Topic and number lead to the one `Partition` that stands for them.
One that does not flow is missing from the map, so its first record is noticed by the look-up that failed, and nothing
is checked for all the others, however many idle partitions there are.
"""

from __future__ import annotations

from worker.core.records import Partition


class _Numbers(dict[int, Partition]):
    """The partitions of one topic that flow, by number; `met` are all of them."""

    def __init__(self, topic: str, strangers: set[Partition]) -> None:
        self.met: dict[int, Partition] = {}
        self._topic = topic
        self._strangers = strangers

    def __missing__(self, number: int) -> Partition:
        partition = self.met.setdefault(number, Partition(self._topic, number))
        self._strangers.add(partition)
        return partition


class Flowing(dict[str, _Numbers]):
    """`flowing[topic][number]` is the partition; if it does not flow, it is among the `strangers` from then on."""

    def __init__(self) -> None:
        self.strangers: set[Partition] = set()

    def __missing__(self, topic: str) -> _Numbers:
        return self.setdefault(topic, _Numbers(topic, self.strangers))

    def named(self, topic: str, number: int) -> Partition:
        """The partition of this name, whether it flows or not."""
        met = self[topic].met
        return met.get(number) or met.setdefault(number, Partition(topic, number))

    def let(self, partition: Partition) -> None:
        """From now on it flows."""
        self[partition.topic][partition.number] = partition

    def stop(self, partition: Partition) -> None:
        """From now on its records are strangers."""
        self[partition.topic].pop(partition.number, None)

    def has(self, partition: Partition) -> bool:
        return partition.number in self[partition.topic]

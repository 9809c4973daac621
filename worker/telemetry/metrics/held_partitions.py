"""The partitions held, how far each is, which stand still, and which are in quarantine.

A quarantine is over when the group's commit reaches its end, or the partition goes away: no event says so.
Owned by the events, on the loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from worker.core.records import Partition, Standing, Suspect
from worker.core.stalls import Stall
from worker.telemetry.metrics.metric_values import Labels


class HeldPartitions:
    """What this replica holds. `suspects` maps partitions to the offset at which their quarantine ends.

    `stalls` are of those that stand still although their logs go on.
    """

    def __init__(self) -> None:
        self.held: set[Partition] = set()
        self.suspects: dict[Partition, int] = {}
        self.stalls: dict[Partition, Stall] = {}
        self._committed: dict[Partition, int] = {}  # next offsets, since the assignment

    def __len__(self) -> int:
        return len(self.held)

    def add(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.held.add(partition)
            self._committed.pop(partition, None)

    def remove(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.held.discard(partition)
            self.suspects.pop(partition, None)
            self.stalls.pop(partition, None)

    def suspect(self, suspect: Suspect) -> None:
        self.suspects[suspect.partition] = suspect.until

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        self._committed.update(offsets)
        if self.suspects:  # seldom
            self.suspects = {p: until for p, until in self.suspects.items() if offsets.get(p, -1) < until}

    @property
    def all_stalled(self) -> bool:
        """Whether nothing comes of anything that is held."""
        return bool(self.held) and self.held <= self.stalls.keys()

    def lag(self, standings: Mapping[Partition, Standing]) -> dict[Labels, float]:
        """How many offsets each partition's commit is behind its end, by topic and number.

        Counted from the furthest commit: the consumer does not learn what a transaction commits.
        """
        return {
            (p.topic, str(p.number)): max(0, end - max(next_offset, self._committed.get(p, 0)))
            for p, (next_offset, end) in standings.items()
            if p in self.held
        }

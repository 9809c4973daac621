"""Which partitions are under suspicion now: their records ended the process several times before any was settled.

Nobody tells when a suspicion is over; it is when the group's commit reaches the end of it, or the partition goes away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from worker.core.records import Partition, Suspect


class Suspects:
    """The suspected partitions that are held. One thread."""

    def __init__(self) -> None:
        self._until: dict[Partition, int] = {}

    def __len__(self) -> int:
        return len(self._until)

    def add(self, suspect: Suspect) -> None:
        self._until[suspect.partition] = suspect.until

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """The group has these next offsets."""
        if self._until:  # seldom: this is called for every commit
            self.gone([p for p, until in self._until.items() if offsets.get(p, -1) >= until])

    def gone(self, partitions: Iterable[Partition]) -> None:
        """They are not held any more."""
        for partition in partitions:
            self._until.pop(partition, None)

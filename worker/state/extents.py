"""How far into its changelog the states of a partition reach: what came before that need not be read back again.

States may be kept by a store that outlives the process (`Keeper`). They are used only where they lead to the same
states as the whole changelog would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from worker.core.records import Partition

# Part of `delete.retention.ms` in which kept states are used. The rest is for reading what came later, and for clocks.
TRUSTED = 0.9


class Extent(NamedTuple):
    """The states have in them all that counts of a changelog before `next_offset`, and maybe some of what follows.

    `known_at`: when that was known for certain, seconds since the epoch.
    """

    next_offset: int
    known_at: float


class Keeper(Protocol):
    """A store that outlives the process. Its calls wait, and may raise `Stop`."""

    def take(self, partition: Partition) -> Extent | None:
        """How far the states reach that a former process kept, and that are ours to change now; None for none."""

    def keep(self, extents: Mapping[Partition, Extent], go_on: Callable[[], bool]) -> bool:
        """Leave what is stored of these to the next process. Whether that was done before `go_on` said no."""


def why_not(extent: Extent, start: int, end: int, now: float, retention: float) -> str | None:
    """Why kept states cannot be used, where the changelog goes from `start` to `end`; None when they can.

    `retention`: for how many seconds a tombstone is there to be read at least (`delete.retention.ms`).
    """
    if not start <= extent.next_offset <= end:
        return f"it reaches to offset {extent.next_offset}, and the changelog goes from {start} to {end}"
    if not 0 <= now - extent.known_at < retention * TRUSTED:
        return (
            f"it is {now - extent.known_at:.0f} s old, and the changelog keeps for {retention:.0f} s "
            "(delete.retention.ms) that a key was forgotten"
        )
    return None

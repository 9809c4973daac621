"""How far into the changelog a copy of the states reaches: what came before that need not be read back again.

A copy may be kept by a store that outlives the process (`Keeper`). It is used only where it leads to the same states as
the whole changelog would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from worker.core.records import Partition

# Part of `delete.retention.ms` in which a copy is used. The rest is for reading what came behind it, and for clocks.
TRUSTED = 0.9


class Extent(NamedTuple):
    """A copy holds all that counts of a changelog's partition before `next_offset`, and may hold some of what follows.

    `known_at`: when that was known for certain, seconds since the epoch.
    """

    next_offset: int
    known_at: float


class Keeper(Protocol):
    """A store that outlives the process. Its calls wait, and may raise `Stop`."""

    def take(self, partition: Partition) -> Extent | None:
        """How far what a former process kept of it reaches, which from now on is ours to change; None for nothing."""

    def keep(self, extents: Mapping[Partition, Extent], go_on: Callable[[], bool]) -> bool:
        """Leave what is stored of these to the next process. Whether that was done before `go_on` said no."""


def why_not(extent: Extent, start: int, end: int, now: float, retention: float) -> str | None:
    """Why a copy cannot be used, of a changelog from `start` to `end`; None when it can.

    `retention`: for how many seconds a tombstone is there to be read at least (`delete.retention.ms`).
    """
    if extent.next_offset < start:
        return f"it reaches to offset {extent.next_offset}, and the changelog begins at {start}"
    if extent.next_offset > end:
        return f"it reaches to offset {extent.next_offset}, and the changelog ends at {end}"
    if not 0 <= now - extent.known_at < retention * TRUSTED:
        return (
            f"it is {now - extent.known_at:.0f} s old, and the changelog keeps for {retention:.0f} s "
            "(delete.retention.ms) that a key was forgotten"
        )
    return None


class Checkpoints:
    """Owns how far the states of each partition reach that is ours, from the end of its restore until it leaves."""

    def __init__(self, keeper: Keeper | None) -> None:
        """Without a `keeper` nothing is kept."""
        self._keeper = keeper
        self._extents: dict[Partition, Extent] = {}
        self._asked: Mapping[Partition, Extent] = {}
        self.has_ended = False  # what was written is what is kept

    @property
    def has_keeper(self) -> bool:
        return self._keeper is not None

    def take(self, partition: Partition) -> Extent | None:
        """How far what is there of it reaches; None for nothing."""
        return None if self._keeper is None else self._keeper.take(partition)

    def restored(self, partition: Partition, extent: Extent | None) -> None:
        """All of its states are here."""
        if extent is not None and self._keeper is not None:
            self._extents[partition] = extent

    def forget(self, partitions: Iterable[Partition]) -> None:
        """What is here of these is of no use any more."""
        for partition in partitions:
            self._extents.pop(partition, None)

    @property
    def partitions(self) -> Collection[Partition]:
        """The partitions whose states can be kept."""
        return self._extents.keys()

    def ask(self, ends: Callable[[Collection[Partition]], Mapping[Partition, Extent]]) -> None:
        """Ask how far the changelog goes. The answer counts for partitions that are confirmed."""
        self._asked = ends(self.partitions) if self._extents else {}

    def end(self, confirmed: Iterable[Partition]) -> None:
        """No state is written any more. These were ours when the changelog was asked, and later."""
        self._extents |= {p: self._asked[p] for p in confirmed if p in self._asked and p in self._extents}
        self.has_ended = True

    def keep(self, go_on: Callable[[], bool]) -> bool:
        """Leave them to the next process. Whether that was done before `go_on` said no."""
        assert self._keeper is not None
        return self._keeper.keep(self._extents, go_on)

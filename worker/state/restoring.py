"""A partition's changelog is read back: which records count, and in which portions the loop takes them over.

Exactly once all records count: what is not committed is not read. At least once a state may be of a request whose
offset was not committed, and that comes again: then the state before it counts, if the changelog still has it.

A store that outlives the process may keep states (`Keeper`). They are used only where they lead to the states of the
whole changelog: then only its tail is read, which came later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from worker.core.records import Partition
from worker.state.layout import FIRST, Sieve, StateLayout

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


class Tombstone(NamedTuple):
    """A key was forgotten by the request with this `offset`, -1 where that is not known.

    `is_first`: it had no state before that.
    """

    offset: int
    is_first: bool = False


@dataclass(slots=True)
class _Ahead:
    """A key that was written by requests that come again. `has_before`: it had a state before the first of them.

    `row` is what the last of them left, with this `offset`; None: it had the key forgotten.
    """

    has_before: bool
    offset: int
    row: NDArray[Any] | None


class RestoredRows(NamedTuple):
    """Some keys of one partition as the changelog has them, in its order.

    `rows` None: the keys were forgotten; `forgotten_by` has the offsets of the requests, -1 where that is not known.
    `is_last`: the partition's states are all there. At least once, the keys of the last portion had states that were
    compacted away: a request that is read again wrote what is left, or had the keys of `gone` forgotten, by the offset
    there. The last portion has the `extent`, where the group `stands_at` (exactly once no state can be of a request
    from there on), and how much was `passed_over` because it is no state of this model.
    `anew` says why kept states do not count: all that is there of the partition goes, and all comes again.
    """

    partition: Partition
    attempt: int
    keys: Sequence[bytes]
    rows: NDArray[Any] | None
    is_last: bool = False
    extent: Extent | None = None
    anew: str = ""
    forgotten_by: Sequence[int] = ()
    gone: Mapping[bytes, int] = {}
    stands_at: int | None = None
    passed_over: int = 0


class Restorer(Protocol):
    """The port to what reads the states of a partition back. Only `ends` waits."""

    def begin(self, partition: Partition, attempt: int, extent: Extent | None) -> None:
        """Read the states of this one; what is found for it names the attempt. `extent`: of what is here already."""

    def forget(self, partitions: Sequence[Partition]) -> None: ...

    def ends(self, partitions: Collection[Partition], timeout: float) -> Mapping[Partition, Extent]:
        """How far the changelog goes, without open transactions, as far as it is told in that time."""

    def found(self) -> RestoredRows | None:
        """The next portion; None while there is none. Raises `Stop` when they cannot be read."""

    @property
    def left(self) -> int:
        """About how many records of the changelog are still to be read."""


class Restoration:
    """One partition being restored. Owns what was written by requests that come again."""

    def __init__(
        self,
        partition: Partition,
        attempt: int,
        layout: StateLayout,
        committed: int,
        *,
        is_exact: bool,
        is_tail: bool = False,
    ) -> None:
        """`committed`: the group's next offset. `is_exact`: all of the changelog counts, however far it goes.

        `is_tail`: the states before are there already, for they were kept.
        """
        self.partition = partition
        self.is_doubtful = (
            False  # a request of a tail comes again, and the state before it may be newer than the kept one
        )
        self._attempt = attempt
        self._layout = layout
        self._committed = None if is_exact else committed
        self._stands_at = committed if is_exact else None
        self._is_tail = is_tail
        self._sieve = Sieve(layout, has_ours=is_tail)
        self._ahead: dict[bytes, _Ahead] = {}

    def states(self, keys: Sequence[bytes], values: Sequence[bytes]) -> RestoredRows:
        """A portion of these."""
        keys, rows = self._sieve.rows(keys, values)
        if self._committed is None or not len(rows) or rows["offset"].max() < self._committed:
            return self._counting(keys, rows)
        behind = np.flatnonzero(rows["offset"] < self._committed)
        counting = self._counting([keys[at] for at in behind.tolist()], rows[behind])
        for at in np.flatnonzero(rows["offset"] >= self._committed).tolist():
            self._comes_again(keys[at], int(rows[at]["offset"]), rows[at], is_first=bool(rows[at]["flags"] & FIRST))
        return counting

    def forgotten(self, keys: Sequence[bytes], tombstones: Sequence[Tombstone]) -> RestoredRows:
        """A portion of keys that were forgotten."""
        end = inf if self._committed is None else self._committed
        ours = {key: stone.offset for key, stone in zip(keys, tombstones, strict=True) if stone.offset < end}
        counting = self._counting(list(ours), None)
        for key, stone in zip(keys, tombstones, strict=True):
            if stone.offset >= end:
                self._comes_again(key, stone.offset, None, is_first=stone.is_first)
        return counting._replace(forgotten_by=list(ours.values()))

    def last(self, extent: Extent | None = None) -> RestoredRows:
        """The last portion: where the state before is gone, what is left.

        Raises `ValueError` where all states are another model's.
        """
        self._sieve.check()
        lost = {key: one for key, one in self._ahead.items() if one.has_before}
        left = {key: one.row for key, one in lost.items() if one.row is not None}
        gone = {key: one.offset for key, one in lost.items() if one.row is None}
        rows = np.array(list(left.values()), self._layout.dtype)
        last = RestoredRows(self.partition, self._attempt, list(left), rows, is_last=True, extent=extent)
        return last._replace(gone=gone, stands_at=self._stands_at, passed_over=self._sieve.passed_over)

    def _comes_again(self, key: bytes, offset: int, row: NDArray[Any] | None, *, is_first: bool) -> None:
        """The request that wrote this comes again, and goes on from the state before it."""
        earlier = self._ahead.get(key)
        self._ahead[key] = _Ahead(not is_first if earlier is None else earlier.has_before, offset, row)
        self.is_doubtful |= self._is_tail

    def _counting(self, keys: Sequence[bytes], rows: NDArray[Any] | None) -> RestoredRows:
        return RestoredRows(self.partition, self._attempt, keys, rows)

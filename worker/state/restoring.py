"""A partition's changelog as it is read back: which records count, and in which portions the loop takes them over.

Exactly once all of it does: what is not committed is not read. At least once a state may have been written by a request
whose offset was not committed, and that will come again: then the state before it counts, if the changelog still has
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from worker.core.records import Partition
from worker.state.extents import Extent
from worker.state.layout import FIRST, PassedOver, Sieve, StateLayout


class Tombstone(NamedTuple):
    """A key was forgotten by the request with this `offset`, -1 where that is not known.

    `is_first`: it had no state before that.
    """

    offset: int
    is_first: bool = False


@dataclass(slots=True)
class _Ahead:
    """A key that requests have written which come again. `has_before`: it had a state before the first of them.

    `row` is what the last of them left; None: that has it forgotten, by this `offset`.
    """

    has_before: bool
    offset: int
    row: NDArray[Any] | None


class RestoredRows(NamedTuple):
    """Some keys of one partition as the changelog has them, in its order; `rows` None: these were forgotten.

    `forgotten_by`: the offsets of the requests by which each of those was, -1 where that is not known.
    `is_last`: the partition's states are all there. The keys of the last are at least once: each had a state that was
    compacted away, and what is left was written by a request that will be read again. That request had the keys of
    `gone` forgotten, and its offset stands there. `extent` is the last's, too, and where the group `stands_at`: exactly
    once, no state can be of a request from there on. What was `passed_over` is no state of this model.

    `anew` says why the copy does not count from which the restore began: all that is there of the partition goes, and
    all comes again.
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
    passed_over: PassedOver | None = None


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
        """`committed`: the group's next offset. `is_exact`: what the changelog has counts, however far it goes.

        `is_tail`: what was before is there, in a copy.
        """
        self.partition = partition
        self.is_doubtful = False  # the state before what comes again may be older in the copy than it was
        self._attempt = attempt
        self._layout = layout
        self._committed = None if is_exact else committed
        self._stands_at = committed if is_exact else None
        self._is_tail = is_tail
        self._sieve = Sieve(layout, has_ours=is_tail)
        self._ahead: dict[bytes, _Ahead] = {}

    def states(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        offset_of: Callable[[int], int | None] = lambda _: None,
    ) -> RestoredRows:
        """A portion of these; `offset_of` is asked where one lies that is no state of this model."""
        keys, rows = self._sieve.rows(keys, values, offset_of)
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

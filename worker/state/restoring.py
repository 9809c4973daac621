"""Decides which records of a partition's changelog count when it is restored, and makes portions of them for the loop.

Exactly once, all records count, because uncommitted records are not read. At least once, a state may come from a
request whose offset was not committed. That request is read again, so the state before it counts, if it is still there.

A store that outlives the process may keep states (`Keeper`). They are used only if reading the changelog's tail, the
records written later, leads to the states of the whole changelog.
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

# Part of `delete.retention.ms` in which kept states are used. The rest allows for reading the tail, and for clocks.
TRUSTED = 0.9


class Extent(NamedTuple):
    """How far states follow their changelog: they include all that counts before `next_offset`, and maybe more.

    `known_at`: when that was certain, in seconds since the epoch.
    """

    next_offset: int
    known_at: float


class Keeper(Protocol):
    """The port to a store that outlives the process. Its calls block, and may raise `Stop`."""

    def take(self, partition: Partition) -> Extent | None:
        """Take over the states that a former process kept. Returns their extent, or None if there are none."""

    def keep(self, extents: Mapping[Partition, Extent], go_on: Callable[[], bool]) -> bool:
        """Leave the stored states to the next process. Returns False if `go_on` returned False before the end."""


def why_not(extent: Extent, start: int, end: int, now: float, retention: float) -> str | None:
    """Returns why kept states cannot be used with a changelog from `start` to `end`, or None if they can.

    `retention`: the seconds for which the changelog keeps a tombstone at least (`delete.retention.ms`).
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
    """The request at `offset` had a key forgotten; -1 if the offset is not known.

    `is_first`: the key had no state before that request.
    """

    offset: int
    is_first: bool = False


@dataclass(slots=True)
class _Ahead:
    """A key that was written by requests that will be read again. `has_before`: it had a state before the first one.

    `row` is the state that the last one, at `offset`, left; None if that had the key forgotten.
    """

    has_before: bool
    offset: int
    row: NDArray[Any] | None


class RestoredRows(NamedTuple):
    """A portion: some keys of one partition, in the changelog's order.

    `rows` is None if the keys were forgotten. Then `forgotten_by` has the offsets of the requests, -1 if not known.
    `is_last`: after this portion all states of the partition are there. At least once, its keys are those whose earlier
    states were compacted away: a request that is read again wrote the row here, or had the key forgotten (`gone`, with
    that offset). The last portion also has the `extent`, the group's next offset (`stands_at`; exactly once, no state
    can come from a request at or after it), and the number of records `passed_over`, which are no states of this model.
    `anew` says why kept states do not count: all states of the partition are dropped, and all are read again.
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
    """The port to the reader of the changelog. Only `ends` blocks."""

    def begin(self, partition: Partition, attempt: int, extent: Extent | None) -> None:
        """Begin to read a partition. Its portions carry `attempt`. `extent`: how far the states that are here reach."""

    def forget(self, partitions: Sequence[Partition]) -> None: ...

    def ends(self, partitions: Collection[Partition], timeout: float) -> Mapping[Partition, Extent]:
        """Returns how far the changelog goes, without open transactions, for partitions whose end is known in time."""

    def found(self) -> RestoredRows | None:
        """Returns the next portion, or None while there is none. Raises `Stop` if the states cannot be read."""

    @property
    def left(self) -> int:
        """The approximate number of changelog records that are still to be read."""


class Restoration:
    """One partition being restored. Owns the states written by requests that will be read again."""

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
        """`committed`: the group's next offset. `is_exact`: all records of the changelog count.

        `is_tail`: earlier states were kept and are here already.
        """
        self.partition = partition
        self.must_begin_anew = False  # a tail's request is read again, and the state before it may be newer than ours
        self._attempt = attempt
        self._layout = layout
        self._committed = None if is_exact else committed
        self._stands_at = committed if is_exact else None
        self._is_tail = is_tail
        self._sieve = Sieve(layout, has_ours=is_tail)
        self._ahead: dict[bytes, _Ahead] = {}

    def states(self, keys: Sequence[bytes], values: Sequence[bytes]) -> RestoredRows:
        """Returns the portion of these records that counts."""
        keys, rows = self._sieve.rows(keys, values)
        if self._committed is None or not len(rows) or rows["offset"].max() < self._committed:
            return self._counting(keys, rows)
        behind = np.flatnonzero(rows["offset"] < self._committed)
        counting = self._counting([keys[at] for at in behind.tolist()], rows[behind])
        for at in np.flatnonzero(rows["offset"] >= self._committed).tolist():
            self._comes_again(keys[at], int(rows[at]["offset"]), rows[at], is_first=bool(rows[at]["flags"] & FIRST))
        return counting

    def forgotten(self, keys: Sequence[bytes], tombstones: Sequence[Tombstone]) -> RestoredRows:
        """Returns the portion of these tombstones that counts."""
        end = inf if self._committed is None else self._committed
        ours = {key: stone.offset for key, stone in zip(keys, tombstones, strict=True) if stone.offset < end}
        counting = self._counting(list(ours), None)
        for key, stone in zip(keys, tombstones, strict=True):
            if stone.offset >= end:
                self._comes_again(key, stone.offset, None, is_first=stone.is_first)
        return counting._replace(forgotten_by=list(ours.values()))

    def last(self, extent: Extent | None = None) -> RestoredRows:
        """Returns the last portion: for keys whose earlier state is gone, the state that is left.

        Raises `ValueError` if all states are another model's.
        """
        self._sieve.check()
        lost = {key: one for key, one in self._ahead.items() if one.has_before}
        left = {key: one.row for key, one in lost.items() if one.row is not None}
        gone = {key: one.offset for key, one in lost.items() if one.row is None}
        rows = np.array(list(left.values()), self._layout.dtype)
        last = RestoredRows(self.partition, self._attempt, list(left), rows, is_last=True, extent=extent)
        return last._replace(gone=gone, stands_at=self._stands_at, passed_over=self._sieve.passed_over)

    def _comes_again(self, key: bytes, offset: int, row: NDArray[Any] | None, *, is_first: bool) -> None:
        """Note a write whose request will be read again: that request has to start from the state before this write."""
        earlier = self._ahead.get(key)
        self._ahead[key] = _Ahead(not is_first if earlier is None else earlier.has_before, offset, row)
        self.must_begin_anew |= self._is_tail

    def _counting(self, keys: Sequence[bytes], rows: NDArray[Any] | None) -> RestoredRows:
        return RestoredRows(self.partition, self._attempt, keys, rows)

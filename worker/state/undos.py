"""Remembers the states that batches overwrite: exactly once, until the group has committed the writes.

After an abort, a partition is read again from its committed offset. The writes of its records from there on are undone,
the last one first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.core.ordering.ledger import Line
from worker.core.records import Partition
from worker.state.slabs import StateRows

FEWEST = 64  # batches, before the committed ones among them are dropped


class Mark(NamedTuple):
    """The part of a batch's write, rows `start` to `stop`, that belongs to one chunk."""

    line: Line
    keys: Sequence[bytes]
    offsets: Sequence[int]
    start: int
    stop: int
    is_deleted: bool


class _Undo(NamedTuple):
    """The states of a batch's keys before it wrote. `had` is true for keys that had a state."""

    marks: list[Mark]
    had: NDArray[np.bool_]
    rows: StateRows


class Undos:
    """Owns the states of each batch's keys before it wrote."""

    def __init__(self) -> None:
        self._undos: list[_Undo] = []
        self._look_at = FEWEST

    def __len__(self) -> int:
        return len(self._undos)

    def remember(self, marks: list[Mark], had: NDArray[np.bool_], rows: StateRows) -> None:
        """Keep the states of a batch that is about to write: `rows`, where `had` is true."""
        self._undos.append(_Undo(marks, had, rows))
        if len(self._undos) >= self._look_at:
            self._keep(lambda mark: mark.line.committed <= mark.offsets[-1])
            self._look_at = max(FEWEST, 2 * len(self._undos))

    def take(self, partition: Partition, offset: int) -> Iterator[tuple[bytes, StateRows | None]]:
        """Yields the states that the partition's records from `offset` on overwrote, the last first; None: no state."""
        for undo in reversed(self._undos):
            for mark in undo.marks:
                if mark.line.partition != partition:
                    continue
                for at, key, wrote in zip(range(mark.start, mark.stop), mark.keys, mark.offsets, strict=True):
                    if wrote >= offset:
                        yield key, undo.rows.row(at) if undo.had[at] else None
        self.forget([partition])

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop what was remembered of these partitions: their writes are not undone any more."""
        self._keep(lambda mark: mark.line.partition not in partitions)

    def _keep(self, may_be_undone: Callable[[Mark], bool]) -> None:
        for undo in self._undos:
            undo.marks[:] = filter(may_be_undone, undo.marks)
        self._undos = [undo for undo in self._undos if undo.marks]

"""Writes of batches that may be taken back: exactly once, until the group has committed them.

An abort makes a partition be read again from where it was committed. What its records wrote from there on is undone,
the last first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.core.records import Line, Partition
from worker.state.slabs import StateRows

FEWEST = 64  # batches, before it is looked which of them are committed


class Mark(NamedTuple):
    """Rows `start` to `stop` of a batch's write: those of one place's requests."""

    line: Line
    keys: Sequence[bytes]
    offsets: Sequence[int]
    start: int
    stop: int
    is_deleted: bool


class _Undo(NamedTuple):
    """How the keys of one batch stood before it wrote. `had`: which of them had a state."""

    marks: list[Mark]
    had: NDArray[np.bool_]
    rows: StateRows


class Undos:
    """Owns how the keys of each batch stood before it wrote."""

    def __init__(self) -> None:
        self._undos: list[_Undo] = []
        self._look_at = FEWEST

    def __len__(self) -> int:
        return len(self._undos)

    def remember(self, marks: list[Mark], had: NDArray[np.bool_], rows: StateRows) -> None:
        """A batch is about to write: `rows` are its keys' states, of which some have none."""
        self._undos.append(_Undo(marks, had, rows))
        if len(self._undos) >= self._look_at:
            self._keep(lambda mark: mark.line.committed <= mark.offsets[-1])
            self._look_at = max(FEWEST, 2 * len(self._undos))

    def take(self, partition: Partition, offset: int) -> Iterator[tuple[bytes, StateRows | None]]:
        """The states that the partition's records from this offset on have overwritten, the last first; None: none."""
        for undo in reversed(self._undos):
            for mark in undo.marks:
                if mark.line.partition != partition:
                    continue
                for at, key, wrote in zip(range(mark.start, mark.stop), mark.keys, mark.offsets, strict=True):
                    if wrote >= offset:
                        yield key, undo.rows.row(at) if undo.had[at] else None
        self.forget([partition])

    def forget(self, partitions: Collection[Partition]) -> None:
        """Nothing of these is taken back any more."""
        self._keep(lambda mark: mark.line.partition not in partitions)

    def _keep(self, may_be_undone: Callable[[Mark], bool]) -> None:
        for undo in self._undos:
            undo.marks[:] = filter(may_be_undone, undo.marks)
        self._undos = [undo for undo in self._undos if undo.marks]

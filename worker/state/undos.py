"""Writes of batches that may be taken back: exactly once, until the group has committed them.

An abort makes a partition be read again from where it was committed. What its records wrote from there on is undone,
the last first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
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


@dataclass(slots=True)
class _Undo:
    """How the keys of one batch stood before it wrote. `had`: which of them had a state."""

    marks: list[Mark]
    had: NDArray[np.bool_]
    rows: StateRows

    def is_over(self) -> bool:
        """Whether all of it is committed, or of partitions that left."""
        return all(mark.line.committed > mark.offsets[-1] for mark in self.marks)

    def of(self, mark: Mark, offset: int) -> Iterator[tuple[bytes, StateRows | None]]:
        for at, key, wrote in zip(range(mark.start, mark.stop), mark.keys, mark.offsets, strict=True):
            if wrote >= offset:
                yield key, self.rows.row(at) if self.had[at] else None


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
            self._undos = [undo for undo in self._undos if not undo.is_over()]
            self._look_at = max(FEWEST, 2 * len(self._undos))

    def take(self, partition: Partition, offset: int) -> Iterator[tuple[bytes, StateRows | None]]:
        """What the partition's records from this offset on have overwritten, for the last time: None where nothing."""
        for undo in reversed(self._undos):
            for mark in undo.marks:
                if mark.line.partition == partition:
                    yield from undo.of(mark, offset)
        self.forget([partition])

    def forget(self, partitions: Collection[Partition]) -> None:
        """Nothing of these is taken back any more."""
        for undo in self._undos:
            undo.marks = [mark for mark in undo.marks if mark.line.partition not in partitions]
        self._undos = [undo for undo in self._undos if undo.marks]

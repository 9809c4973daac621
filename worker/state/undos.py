"""Remembers the states that batches overwrite: exactly once, until the group has committed the writes.

After an abort, a partition is read again from its committed offset. The writes of its records from there on are undone,
the last one first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.core.chunk import Chunk
from worker.core.ordering.ledger import Line
from worker.core.records import Array, Partition
from worker.state.slabs import StateRows

FEWEST = 128  # chunks, before the committed ones among them are dropped


class Undo(NamedTuple):
    """The states of different keys before the requests at `offsets` wrote; `had` is true for keys that had a state."""

    line: Line
    keys: Sequence[bytes]
    offsets: Array
    had: NDArray[np.bool_]
    rows: StateRows


def undos_of(chunks: Sequence[Chunk], offsets: Array, had: NDArray[np.bool_], rows: StateRows) -> Iterator[Undo]:
    """Parts the states of a batch's keys by chunk."""
    start = 0
    for chunk in chunks:
        assert chunk.places is not None
        part = slice(start, start + len(chunk))
        yield Undo(chunk.places.line, chunk.keys, offsets[part], had[part], rows.of(part))
        start = part.stop


class Undos:
    """Owns the states of each chunk's keys before it wrote."""

    def __init__(self) -> None:
        self._undos: list[Undo] = []
        self._look_at = FEWEST

    def __len__(self) -> int:
        return len(self._undos)

    def remember(self, undos: Iterable[Undo]) -> None:
        """Keep the states of keys that are about to be written."""
        self._undos += undos
        if len(self._undos) >= self._look_at:
            self._keep(lambda undo: undo.line.committed <= undo.offsets[-1])
            self._look_at = max(FEWEST, 2 * len(self._undos))

    def take(self, partition: Partition, offset: int) -> Iterator[Undo]:
        """Yields what the partition's records from `offset` on overwrote, the last first."""
        for undo in reversed(self._undos):
            if undo.line.partition == partition and (are_undone := undo.offsets >= offset).any():
                keys = list(compress(undo.keys, are_undone))
                had, rows = undo.had[are_undone], undo.rows.of(are_undone)
                yield Undo(undo.line, keys, undo.offsets[are_undone], had, rows)
        self.forget([partition])

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop what was remembered of these partitions: their writes are not undone any more."""
        self._keep(lambda undo: undo.line.partition not in partitions)

    def _keep(self, may_be_undone: Callable[[Undo], bool]) -> None:
        self._undos = list(filter(may_be_undone, self._undos))

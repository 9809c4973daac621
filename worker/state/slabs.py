"""States in memory: one array per tensor with a row for each slot, beside the offset and the time of each.

Slot 0 holds the state of a key that has none, so a batch is gathered without asking which keys are new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.core.records import Array
from worker.state.layout import NO_TIME, StateLayout

NO_OFFSET = -1
SMALLEST = 1024  # slots
MOST_MORE = 65_536  # slots, at once


class Rows(NamedTuple):
    """Some keys' states, each with the offset that wrote it and the time of its last use."""

    states: Sequence[Array]
    offsets: Array
    times: Array

    @classmethod
    def of(cls, layout: StateLayout, rows: NDArray[Any]) -> Rows:
        """As the changelog and a store have them: rows of the layout's `dtype`."""
        return cls(layout.tensors_of(rows), rows["offset"], rows["time"])

    def row(self, at: int) -> Rows:
        """One of them."""
        only = slice(at, at + 1)
        return Rows([state[only] for state in self.states], self.offsets[only], self.times[only])


class Slabs:
    """Owns the arrays, and knows which slots are free. Not whose they are."""

    def __init__(self, layout: StateLayout) -> None:
        self.states = [np.empty((SMALLEST, *first.shape), first.dtype) for first in layout.initial]
        for slab, first in zip(self.states, layout.initial, strict=True):
            slab[0] = first
        self.offsets = np.full(SMALLEST, NO_OFFSET, np.int64)
        self.times = np.full(SMALLEST, NO_TIME, np.int64)
        self.used = 1  # slots that were ever given, that of no state among them
        self._free: list[int] = []

    @property
    def given(self) -> int:
        """Slots that hold a key's state."""
        return self.used - 1 - len(self._free)

    def new(self) -> int:
        """A slot."""
        if self._free:
            return self._free.pop()
        if self.used == len(self.offsets):
            self._grow()
        self.used += 1
        return self.used - 1

    def release(self, slots: Iterable[int]) -> None:
        """These may be given again."""
        self._free += slots

    def gather(self, slots: NDArray[np.intp]) -> list[Array]:
        """Copies of their states, one array per tensor."""
        return [slab.take(slots, axis=0) for slab in self.states]

    def rows(self, slots: NDArray[np.intp]) -> Rows:
        """Copies of all that they hold."""
        return Rows(self.gather(slots), self.offsets[slots], self.times[slots])

    def put(self, slots: NDArray[np.intp], rows: Rows) -> None:
        """These are their states now."""
        for slab, state in zip(self.states, rows.states, strict=True):
            slab[slots] = state
        self.offsets[slots] = rows.offsets
        self.times[slots] = rows.times

    def _grow(self) -> None:
        """In place, where the system moves no memory for it, and by little: a turn of the loop waits for this."""
        count = len(self.offsets)
        more = min(count, MOST_MORE)
        for array in (*self.states, self.offsets, self.times):  # nothing refers into them: gathers are copies
            array.resize((count + more, *array.shape[1:]), refcheck=False)

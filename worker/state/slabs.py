"""The states, each in a slot: one array per tensor with a row for each slot, and arrays of their offsets and times.

Slot 0 holds the state of a new key, so a batch is gathered without asking which keys are new. The arrays are in memory,
or in files that are mapped into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.core.records import Array
from worker.state.layout import NO_TIME, StateLayout

NO_OFFSET = -1
SMALLEST = 1024  # slots
MOST_MORE = 65_536  # slots that are added at once

# Gives a named array at least so many rows, and returns it. References to the old array may not see later changes.
Grow = Callable[[str, Array, int], Array]


class StateRows(NamedTuple):
    """Some keys' states, each with the offset that wrote it and the time of its last use."""

    states: Sequence[Array]
    offsets: Array
    times: Array

    @classmethod
    def of_values(cls, layout: StateLayout, rows: NDArray[Any]) -> StateRows:
        """Makes them from changelog values: rows of the layout's `dtype`."""
        return cls(layout.tensors_of(rows), rows["offset"], rows["time"])

    def of(self, part: slice | Array) -> StateRows:
        """Returns some of the rows."""
        return StateRows([state[part] for state in self.states], self.offsets[part], self.times[part])


def in_memory(_: str, array: Array, rows: int) -> Array:
    """Grows an array in place if the system can. Nothing else refers to its memory, because gathers are copies."""
    array.resize((rows, *array.shape[1:]), refcheck=False)
    return array


class Slabs:
    """Owns the arrays and the list of free slots. Does not know the slots' keys."""

    def __init__(self, layout: StateLayout, grow: Grow = in_memory) -> None:
        self._grow_one = grow
        self.states = [np.empty((0, *first.shape), first.dtype) for first in layout.initial]
        self.offsets, self.times = np.empty(0, np.int64), np.empty(0, np.int64)
        self._grow(SMALLEST)
        self.put(np.zeros(1, np.intp), StateRows(layout.initial, np.array([NO_OFFSET]), np.array([NO_TIME])))
        self.used = 1  # slots that were ever given, slot 0 among them
        self._free: list[int] = []

    def resume(self, are_given: NDArray[np.bool_]) -> None:
        """Take over the slots in files of a former process: `are_given` tells which are in use."""
        self.used = int(are_given.nonzero()[0].max(initial=0)) + 1
        self._free = (np.flatnonzero(~are_given[1 : self.used]) + 1).tolist()

    @property
    def given(self) -> int:
        """Number of slots that hold a key's state."""
        return self.used - 1 - len(self._free)

    def new(self, count: int) -> list[int]:
        """Give out so many slots."""
        at = max(0, len(self._free) - count)
        slots = self._free[at:]
        del self._free[at:]
        first, self.used = self.used, self.used + count - len(slots)
        while self.used > len(self.offsets):
            # In small steps, because a turn of the loop waits for this.
            self._grow(len(self.offsets) + min(len(self.offsets), MOST_MORE))
        slots += range(first, self.used)
        return slots

    def release(self, slots: Iterable[int]) -> None:
        """Make these slots free again."""
        self._free += slots

    def gather(self, slots: NDArray[np.intp]) -> list[Array]:
        """Returns copies of the slots' states, one array per tensor."""
        return [slab.take(slots, axis=0) for slab in self.states]

    def rows(self, slots: NDArray[np.intp]) -> StateRows:
        """Returns copies of the slots' states, offsets and times."""
        return StateRows(self.gather(slots), self.offsets[slots], self.times[slots])

    def put(self, slots: NDArray[np.intp], rows: StateRows) -> None:
        """Write states, offsets and times into the slots."""
        for slab, state in zip(self.states, rows.states, strict=True):
            slab[slots] = state
        self.offsets[slots] = rows.offsets
        self.times[slots] = rows.times

    def _grow(self, rows: int) -> None:
        self.states = [self._grow_one(f"states-{at}", slab, rows) for at, slab in enumerate(self.states)]
        self.offsets = self._grow_one("offsets", self.offsets, rows)
        self.times = self._grow_one("times", self.times, rows)

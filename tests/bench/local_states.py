"""The states of a worker's local store without a worker, for what is measured beside it: read and written by key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from worker.core.records import Array, Partition
from worker.core.tensors.specs import TensorSpec
from worker.state import StateLayout
from worker.state.layout import StateTensor
from worker.state.slabs import Rows, Slabs
from worker.state.stored_slots import StoredSlots
from worker.stores import LocalStore


def layout_of(width: int) -> StateLayout:
    """States of so many floats."""
    return StateLayout((StateTensor(TensorSpec("h_in", "FP32", (width,)), "h_out"),), (np.zeros(width, "<f4"),))


class LocalStates:
    """Owns a directory, of whose keys so many are in memory."""

    def __init__(self, directory: Path, width: int, most_in_memory: int = 1024) -> None:
        self._store = LocalStore(directory)
        self._slabs = Slabs(layout_of(width), self._store.grow)
        self._slots = StoredSlots(self._slabs, self._store, most_in_memory)

    def read(self, partition: Partition, keys: Sequence[bytes]) -> Array:
        """A row for each, zeros for one that was never written."""
        return self._slabs.rows(np.array(list(self._slots.find(partition, keys)), np.intp)).states[0]

    def write(self, partition: Partition, keys: Sequence[bytes], states: Array) -> None:
        """A row for each; each is named once."""
        slots = dict(zip(keys, self._slots.find(partition, keys), strict=True))
        new = [key for key, slot in slots.items() if not slot]
        slots |= zip(new, self._slots.add(partition, new), strict=True)
        ones = np.ones(len(keys), np.int64)
        self._slots.put(np.array(list(slots.values()), np.intp), Rows([states], ones, ones))

    def close(self) -> None:
        self._store.close()

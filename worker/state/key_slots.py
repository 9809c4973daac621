"""Which slot the state of each key has, and whose a slot is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from worker.core.records import Partition
from worker.state.slabs import Rows, Slabs

_NOTHING: Mapping[bytes, int] = {}


class KeySlots:
    """Owns who has which slot. Here all keys are in memory; `stored_slots.py` has one whose keys need not be."""

    def __init__(self, slabs: Slabs, *, knows_owners: bool) -> None:
        """`knows_owners`: `owner` will be asked."""
        self._slabs = slabs
        self._index: dict[Partition, dict[bytes, int]] = {}
        self._owners: list[tuple[Partition, bytes] | None] = []
        self._knows_owners = knows_owners
        self.loads = 0  # states that were not in memory when they were asked for

    @property
    def keys(self) -> int:
        """Keys that have a state."""
        return self._slabs.given

    def keys_of(self, partition: Partition) -> int:
        """Keys of a partition that have a state."""
        return len(self._index.get(partition, _NOTHING))

    def begin(self) -> None:
        """A batch begins: the slots of what it asks for stay until the next one begins."""

    def find(self, partition: Partition, keys: Sequence[bytes]) -> Iterator[int]:
        """The slot of each of these keys, 0 for none. To be gone through before anything else is asked."""
        return map(self._index.get(partition, _NOTHING).get, keys, repeat(0))

    def add(self, partition: Partition, key: bytes) -> int:
        """A slot for a key that has none."""
        slot = self._slabs.new()
        self._index.setdefault(partition, {})[key] = slot
        if self._knows_owners:
            self._owners += [None] * (slot + 1 - len(self._owners))
            self._owners[slot] = partition, key
        return slot

    def put(self, slots: NDArray[np.intp], rows: Rows) -> None:
        """These are their states now."""
        self._slabs.put(slots, rows)

    def drop(self, partition: Partition, key: bytes) -> None:
        """The key has no state any more."""
        slot = self._index.get(partition, {}).pop(key, None)
        if slot is not None:
            self._free([slot])

    def owner(self, slot: int) -> tuple[Partition, bytes] | None:
        """Whose state it is."""
        return self._owners[slot]

    def forget(self, partition: Partition) -> None:
        """No key of it has a state."""
        self._free(list(self._index.pop(partition, {}).values()))

    def some_times(self, partition: Partition, most: int) -> Iterable[tuple[bytes, int]]:  # noqa: ARG002  # all are in memory
        """Some keys that are not in memory, others with each call, and when each was used last, milliseconds."""
        return ()

    def _free(self, slots: Sequence[int]) -> None:
        self._slabs.release(slots)
        for slot in slots if self._knows_owners else ():
            self._owners[slot] = None

"""Which slot the state of each key has, and whose a slot is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from worker.core.records import Partition
from worker.state.layout import NO_TIME
from worker.state.slabs import Rows, Slabs

LOOKED_AT = 256  # slots, at once, for keys that no request used for long
_NOTHING: Mapping[bytes, int] = {}


class KeySlots:
    """Owns who has which slot. Here all keys are in memory; `stored_slots.py` has one whose keys need not be."""

    def __init__(self, slabs: Slabs, *, knows_owners: bool) -> None:
        """`knows_owners`: `unused_since` will be asked."""
        self._slabs = slabs
        self._index: dict[Partition, dict[bytes, int]] = {}
        self._owners: list[tuple[Partition, bytes] | None] = []
        self._knows_owners = knows_owners
        self._next_look = 1
        self.loads = 0  # keys that were not in memory when they were asked for

    @property
    def keys(self) -> int:
        """Keys that have a state."""
        return self._slabs.given

    def keys_of(self, partition: Partition) -> int:
        """Keys of a partition that have a state."""
        return len(self._index.get(partition, _NOTHING))

    def find(self, partition: Partition, keys: Sequence[bytes]) -> Iterator[int]:
        """The slot of each of these keys, 0 for none. To be gone through before anything else is asked."""
        return map(self._index.get(partition, _NOTHING).get, keys, repeat(0))

    def add(self, partition: Partition, keys: Sequence[bytes]) -> list[int]:
        """A slot for each of these keys, which have none; each is named once."""
        slots = self._slabs.new(len(keys))
        self._index.setdefault(partition, {}).update(zip(keys, slots, strict=True))
        if self._knows_owners:
            self._owners += [None] * (self._slabs.used - len(self._owners))
            for slot, key in zip(slots, keys, strict=True):
                self._owners[slot] = partition, key
        return slots

    def put(self, slots: NDArray[np.intp], rows: Rows) -> None:
        """These are their states now."""
        self._slabs.put(slots, rows)

    def drop(self, partition: Partition, key: bytes) -> None:
        """The key has no state any more."""
        slot = self._index.get(partition, {}).pop(key, None)
        if slot is not None:
            self._free([slot])

    def forget(self, partition: Partition) -> None:
        """No key of it has a state."""
        self._free(list(self._index.pop(partition, {}).values()))

    def unused_since(self, time: int) -> Iterator[tuple[Partition, bytes, int]]:
        """Some of the keys that no request used since then, each with when one did; others with each call."""
        at = slice(self._next_look, min(self._next_look + LOOKED_AT, self._slabs.used))
        self._next_look = at.stop if at.stop < self._slabs.used else 1
        times = self._slabs.times[at]
        for slot in (np.flatnonzero((times != NO_TIME) & (times < time)) + at.start).tolist():
            if (owner := self._owners[slot]) is not None:
                yield *owner, int(self._slabs.times[slot])

    def _free(self, slots: Sequence[int]) -> None:
        self._slabs.release(slots)
        for slot in slots if self._knows_owners else ():
            self._owners[slot] = None

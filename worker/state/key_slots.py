"""Which slot the state of each key has, and whose a slot is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from worker.core.records import Partition
from worker.state.layout import NO_TIME
from worker.state.slabs import Slabs, StateRows

LOOKED_AT = 256  # slots, at once, for keys that no request used for long
PASSED_AT_ONCE = 1024  # slots, by the hand
# Slots that were looked at in vain for each key that is added: where all are needed, each look at all of them took the
# loop a millisecond.
VAIN_LOOKS = 4
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

    def put(self, slots: NDArray[np.intp], rows: StateRows) -> None:
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


class CachedSlots(KeySlots):
    """The states in memory of a store outside: every key that is here has a slot, also one that has no state there.

    A hand goes round the slots. The state of one that was used since it last came by stays, and so does one that a
    request needs or that is not stored. Nothing is written back: what may go is in the store. There may be more than
    `most` keys where the others are still needed.
    """

    def __init__(self, slabs: Slabs, most: int, may_go: Callable[[Partition, bytes, int], bool]) -> None:
        """`may_go` is asked of a key and the offset that wrote its state."""
        super().__init__(slabs, knows_owners=True)
        self._most = most
        self._may_go = may_go
        self._was_used = np.zeros(1, np.bool_)  # since the hand came by
        self._is_none = np.ones(1, np.bool_)  # the key has no state
        self._hand = 1
        self._rest = 0  # keys to be added before room is looked for again

    def find(self, partition: Partition, keys: Sequence[bytes]) -> Iterator[int]:
        slots = list(super().find(partition, keys))
        self._was_used[slots] = True
        return iter(slots)

    def has_state(self, partition: Partition, key: bytes) -> bool:
        """Whether the key, which is in memory, has one."""
        return not self._is_none[self._index.get(partition, {}).get(key, 0)]

    def add(self, partition: Partition, keys: Sequence[bytes]) -> list[int]:
        return [self._add(partition, key) for key in keys]

    def _add(self, partition: Partition, key: bytes) -> int:
        if self._slabs.given >= self._most:
            self._rest -= 1
            if self._rest < 0:
                self._make_room()
        [slot] = super().add(partition, [key])
        if slot >= len(self._was_used):
            more = len(self._slabs.offsets) - len(self._was_used)
            self._was_used = np.concatenate([self._was_used, np.zeros(more, np.bool_)])
            self._is_none = np.concatenate([self._is_none, np.ones(more, np.bool_)])
        self._was_used[slot] = self._is_none[slot] = True
        return slot

    def put(self, slots: NDArray[np.intp], rows: StateRows) -> None:
        super().put(slots, rows)
        self._is_none[slots] = False

    def put_none(self, slots: NDArray[np.intp], offsets: Sequence[int]) -> None:
        """Their keys have no state, since these requests or ever."""
        first = self._slabs.rows(np.zeros(len(slots), np.intp))
        times = np.full(len(slots), NO_TIME, np.int64)
        self._slabs.put(slots, first._replace(offsets=np.array(offsets, np.int64), times=times))
        self._is_none[slots] = True

    def drop(self, partition: Partition, key: bytes) -> None:
        slot = self._index[partition][key]
        self.put_none(np.array([slot]), [int(self._slabs.offsets[slot])])

    def _make_room(self) -> None:
        """Look at some slots, and free the ones that nothing needs. Called so often that it need not find any."""
        at = slice(self._hand, min(self._hand + PASSED_AT_ONCE, self._slabs.used))
        self._hand = at.stop if at.stop < self._slabs.used else 1
        idle = (np.flatnonzero(~self._was_used[at]) + at.start).tolist()
        self._was_used[at] = False
        gone = [slot for slot in idle if self._let_go(slot)]
        self._free(gone)
        self._rest = (len(idle) - len(gone)) // VAIN_LOOKS

    def _let_go(self, slot: int) -> bool:
        if (owner := self._owners[slot]) is None or not self._may_go(*owner, int(self._slabs.offsets[slot])):
            return False
        partition, key = owner
        del self._index[partition][key]
        return True

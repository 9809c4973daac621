"""Maps each key to the slot of its state, and chooses the keys that leave memory when not all fit.

    key ─▶ used lately, or older: in memory ─┐
       └─▶ store ────────────────────────────┴─▶ slot ─▶ its row in the slabs

Keys leave in rounds. When memory is full, all keys in memory become "older". An older key that is asked for is "used
lately" again, and the others leave. The store then knows their slots. A state stays in one slot as long as its key has
a state, and the slabs are files mapped into memory: the system keeps the used pages there. So a key is brought in by
looking up its slot, a changed state is written once, in its place, and the store is written only when a new key leaves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from worker.core.records import Array, Partition
from worker.state.layout import NO_TIME
from worker.state.slabs import NO_OFFSET, Slabs, StateRows, in_memory

# The share of the keys in memory, and the number of keys, that leave at once at most: LMDB writes faster when several
# keys go to one page. A million new keys with 50,000 in memory take 4.0 us each, and 4.8 when a sixty-fourth leaves; a
# turn of the loop waits 15 ms for it (2026-11).
SHARE_LEAVES, MOST_LEAVE = 1 / 8, 8192
STORED_AT_ONCE = 8192  # keys, when the worker stops
STORED_LOOKED_AT = 32  # keys of the store at once, in the search for keys that no request used for long
_FREE = 0  # the owner of a free slot


class SlotStore(Protocol):
    """The port to a store of slots by key, and of the slots' rows. All calls block, and may raise `Stop`."""

    @property
    def kept(self) -> Collection[Partition]:
        """The partitions whose states a former process left and this process has not taken yet."""

    def grow(self, name: str, array: Array, rows: int) -> Array:
        """Returns the array of that name, with the type of `array` and at least `rows` rows; new rows are zeros."""

    def keys_of(self, partition: Partition) -> int: ...

    def get(self, partition: Partition, keys: Sequence[bytes]) -> Sequence[int]:
        """Returns the slot of each key, 0 for a key without one."""

    def put(self, partition: Partition, keys: Sequence[bytes], slots: Sequence[int]) -> None: ...
    def delete(self, partition: Partition, key: bytes) -> None: ...
    def forget(self, partition: Partition) -> None: ...

    def some(self, partition: Partition, most: int) -> Sequence[tuple[bytes, int]]:
        """Returns at most `most` keys with their slots: with each call the next ones, and after the last the first."""


class NoSlotStore:
    """The `SlotStore` of a worker that has all keys in memory."""

    kept = ()

    def grow(self, name: str, array: Array, rows: int) -> Array:
        return in_memory(name, array, rows)

    def keys_of(self, _: Partition) -> int:
        return 0

    def get(self, _: Partition, keys: Sequence[bytes]) -> Sequence[int]:
        return [0] * len(keys)

    def put(self, partition: Partition, keys: Sequence[bytes], slots: Sequence[int]) -> None: ...
    def delete(self, partition: Partition, key: bytes) -> None: ...
    def forget(self, partition: Partition) -> None: ...

    def some(self, _: Partition, most: int) -> Sequence[tuple[bytes, int]]:  # noqa: ARG002  # as its caller has it
        return ()


@dataclass(slots=True)
class PartitionKeys:
    """The keys of one partition in memory, with their slots. `beyond` counts the keys that only the store has."""

    beyond: int = 0
    lately: dict[bytes, int] = field(default_factory=dict)
    older: dict[bytes, int] = field(default_factory=dict)
    to_look_at: list[bytes] = field(default_factory=list)  # keys that this round of the search for old ones has left

    @property
    def in_memory(self) -> int:
        return len(self.lately) + len(self.older)


class KeySlots:
    """Owns the slot of each key, the choice of the keys in memory, and the partition of each slot."""

    def __init__(self, slabs: Slabs, store: SlotStore = NoSlotStore(), most: int = sys.maxsize) -> None:  # noqa: B008  # it has no state
        """`slabs` are in the store's files. `most`: keys in memory."""
        self._slabs = slabs
        self._store = store
        self._most = most
        self._keys: dict[Partition, PartitionKeys] = {}
        self._leaving: list[tuple[Partition, list[bytes]]] = []  # older keys; the next to leave are last
        self._looks: Iterator[Partition] = iter(())
        self.loads = 0  # keys that were not in memory when they were asked for
        # The partition number + 1 for each slot, negative if the store does not have its key. There is one topic.
        self._owners = store.grow("owners", np.empty(0, np.int32), len(slabs.offsets))
        self._owners[~np.isin(self._owners, [_owner(partition) for partition in store.kept])] = _FREE
        slabs.resume(self._owners != _FREE)

    @property
    def keys(self) -> int:
        """Number of keys that have a state."""
        return sum(ours.in_memory + ours.beyond for ours in self._keys.values())

    def keys_of(self, partition: Partition) -> int:
        """Number of the partition's keys that have a state."""
        ours = self._of(partition)
        return ours.in_memory + ours.beyond

    def find(self, partition: Partition, keys: Sequence[bytes]) -> list[int]:
        """Returns the slot of each key, 0 for a key without one, and brings the keys into memory."""
        ours = self._of(partition)
        slots = list(map(ours.lately.get, keys, repeat(0)))
        if all(slots) or not (ours.older or ours.beyond):
            return slots
        missing = dict.fromkeys([key for key, slot in zip(keys, slots, strict=True) if not slot])
        found = dict(zip(missing, map(ours.older.pop, missing, repeat(0)), strict=True))
        found |= self._load(partition, ours, [key for key, slot in found.items() if not slot])
        ours.lately |= {key: slot for key, slot in found.items() if slot}
        self._make_room(0)
        return [slot or found[key] for key, slot in zip(keys, slots, strict=True)]

    def last_offset(self, partition: Partition) -> int:
        """Returns the highest offset that wrote one of the partition's states."""
        return int(self._slabs.offsets[self._slots_of(partition)].max(initial=NO_OFFSET))

    def add(self, partition: Partition, keys: Sequence[bytes]) -> list[int]:
        """Give a slot to each of these keys; they have none, and each is named once."""
        self._make_room(len(keys))
        slots = self._slabs.new(len(keys))
        if len(self._owners) < len(self._slabs.offsets):
            self._owners = self._store.grow("owners", self._owners, len(self._slabs.offsets))
        self._owners[slots] = -_owner(partition)
        self._of(partition).lately.update(zip(keys, slots, strict=True))
        return slots

    def give(self, partition: Partition, keys: Sequence[bytes]) -> list[int]:
        """Returns the slot of each key; a key without one gets one. A key may be named twice."""
        slots = self.find(partition, keys)
        if all(slots):
            return slots
        new = list(dict.fromkeys([key for key, slot in zip(keys, slots, strict=True) if not slot]))
        given = dict(zip(new, self.add(partition, new), strict=True))
        return [slot or given[key] for key, slot in zip(keys, slots, strict=True)]

    def put(self, slots: NDArray[np.intp], rows: StateRows) -> None:
        """Write states into these slots."""
        self._slabs.put(slots, rows)

    def drop(self, partition: Partition, key: bytes) -> None:
        """Free the key's slot: it has no state any more."""
        ours = self._of(partition)
        slot = ours.lately.pop(key, 0) or ours.older.pop(key, 0) or self._load(partition, ours, [key]).get(key, 0)
        if slot:
            if self._owners[slot] > 0:
                self._store.delete(partition, key)
            self._free([slot])

    def forget(self, partition: Partition) -> None:
        """Drop the states of all keys of the partition."""
        self._keys.pop(partition, None)
        self._store.forget(partition)
        self._free(self._slots_of(partition).tolist())

    def _slots_of(self, partition: Partition) -> NDArray[np.intp]:
        return np.flatnonzero(np.abs(self._owners[: self._slabs.used]) == _owner(partition))

    def store_all(self, partitions: Collection[Partition], go_on: Callable[[], bool]) -> bool:
        """Write all keys of these partitions to the store. Returns False if `go_on` returned False before the end.

        The keys go in sorted order: LMDB takes a million in 0.45 s, in any other order in 2.9 (measured 2026-11).
        """
        for partition in partitions:
            ours = self._of(partition)
            slots = ours.older | ours.lately
            news = sorted(compress(slots, (self._owners[list(slots.values())] < 0).tolist()))
            for start in range(0, len(news), STORED_AT_ONCE):
                if not go_on():
                    return False
                some = news[start : start + STORED_AT_ONCE]
                self._store_news(partition, some, [slots[key] for key in some])
        return go_on()

    def unused_since(self, time: int, most: int) -> Iterator[tuple[Partition, bytes, int]]:
        """Yields keys that no request used since `time`, with their last use. Each call looks at `most` other keys."""
        if (partition := next(self._looks, None)) is None:
            self._looks = iter(list(self._keys))
            return
        keys, slots = self._some(partition, self._of(partition), most)
        times = self._slabs.times[slots]
        for at in np.flatnonzero((times != NO_TIME) & (times < time)).tolist():
            yield partition, keys[at], int(times[at])

    def _some(self, partition: Partition, ours: PartitionKeys, most: int) -> tuple[list[bytes], list[int]]:
        """Returns the next keys to look at, with their slots; 0 for a key that is gone."""
        ours.to_look_at = ours.to_look_at or [*ours.lately, *ours.older]
        keys = ours.to_look_at[-most:]
        del ours.to_look_at[-most:]
        slots = list(map(ours.lately.get, keys, repeat(0)))
        if ours.older:
            slots = [slot or ours.older.get(key, 0) for key, slot in zip(keys, slots, strict=True)]
        stored = self._store.some(partition, STORED_LOOKED_AT)
        return keys + [key for key, _ in stored], slots + [slot for _, slot in stored]

    def _of(self, partition: Partition) -> PartitionKeys:
        if (ours := self._keys.get(partition)) is None:
            ours = self._keys[partition] = PartitionKeys(self._store.keys_of(partition))
        return ours

    def _free(self, slots: list[int]) -> None:
        self._owners[slots] = _FREE
        self._slabs.release(slots)

    # Memory

    def _make_room(self, added: int) -> None:
        """Let keys leave memory until `added` more fit."""
        if (count := self._too_many(sum([ours.in_memory for ours in self._keys.values()]), added)) <= 0:
            return
        while count > 0:
            if not self._leaving:
                self._begin_round()
            partition, keys = self._leaving[-1]
            some = keys[-count:]
            del keys[-count:]
            if not keys:
                self._leaving.pop()
            if (ours := self._keys.get(partition)) is not None:
                older = {key: slot for key in some if (slot := ours.older.pop(key, 0))}
                self._let_go(partition, ours, older)
                count -= len(older)

    def _begin_round(self) -> None:
        for partition, ours in self._keys.items():
            ours.older, ours.lately = ours.lately, {}
            self._leaving.append((partition, list(reversed(ours.older))))

    def _load(self, partition: Partition, ours: PartitionKeys, keys: Sequence[bytes]) -> dict[bytes, int]:
        if not keys or not ours.beyond:
            return {}
        slots = self._store.get(partition, keys)
        loaded = len(keys) - slots.count(0)
        ours.beyond -= loaded
        self.loads += loaded
        return dict(zip(keys, slots, strict=True))

    def _too_many(self, in_memory: int, added: int) -> int:
        """Returns how many keys are to leave: more than must, because fewer and larger writes cost less."""
        too_many = in_memory + added - self._most
        return min(too_many + min(int(self._most * SHARE_LEAVES), MOST_LEAVE), in_memory) if too_many > 0 else 0

    def _let_go(self, partition: Partition, ours: PartitionKeys, keys: dict[bytes, int]) -> None:
        slots = list(keys.values())
        if (are_news := self._owners[slots] < 0).any():
            news = sorted(compress(keys, are_news.tolist()))
            self._store_news(partition, news, [keys[key] for key in news])
        ours.beyond += len(keys)

    def _store_news(self, partition: Partition, keys: Sequence[bytes], slots: list[int]) -> None:
        self._store.put(partition, keys, slots)
        self._owners[slots] = _owner(partition)


def _owner(partition: Partition) -> int:
    return partition.number + 1

"""Which slot the state of each key has, and which keys leave memory where not all fit.

    key ─▶ used lately, or older: in memory ─┐
       └─▶ store ────────────────────────────┴─▶ slot ─▶ its row in the slabs

Keys leave in rounds: when memory is full, all that is there becomes older; a key that is asked for after that is used
lately again; the others leave. A store knows where the states of these are: a state has one slot as long as its key has
a state, and the slabs are files mapped into memory, of which the system keeps in memory what is used. So to bring a key
in is to look its slot up, a state that changes is written once, where it is, and the store is written when a key leaves
memory that it does not have.
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

# What leaves memory at once, of the keys there and at most: LMDB is to find several for a page. A million new keys with
# 50,000 in memory take 4.0 us each, and 4.8 by a sixty-fourth; a turn of the loop waits 15 ms for it (2026-11).
SHARE_LEAVES, MOST_LEAVE = 1 / 8, 8192
STORED_AT_ONCE = 8192  # keys, at the end
STORED_LOOKED_AT = 32  # keys of the store at once, for those that no request used for long
_FREE = 0  # instead of an owner


class Store(Protocol):
    """Slots by key, and the rows of the slots. All calls wait, and may raise `Stop`."""

    @property
    def kept(self) -> Collection[Partition]:
        """The partitions of which a former process left something that was not taken yet."""

    def grow(self, name: str, array: Array, rows: int) -> Array:
        """The array of that name, of the kind of `array`, with so many rows at least: those it had, and zeros."""

    def keys_of(self, partition: Partition) -> int: ...

    def get(self, partition: Partition, keys: Sequence[bytes]) -> Sequence[int]:
        """The slot of each key, 0 for one that has none."""

    def put(self, partition: Partition, keys: Sequence[bytes], slots: Sequence[int]) -> None: ...
    def delete(self, partition: Partition, key: bytes) -> None: ...
    def forget(self, partition: Partition) -> None: ...

    def some(self, partition: Partition, most: int) -> Sequence[tuple[bytes, int]]:
        """Some keys with their slots; with each call the next ones, and the first again behind the last."""


class NoStore:
    """All keys are in memory."""

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
    """The keys of one partition in memory, with their slots. `beyond`: how many a store has alone."""

    beyond: int = 0
    lately: dict[bytes, int] = field(default_factory=dict)
    older: dict[bytes, int] = field(default_factory=dict)
    to_look_at: list[bytes] = field(default_factory=list)  # in this round, for keys that no request used for long

    @property
    def in_memory(self) -> int:
        return len(self.lately) + len(self.older)


class KeySlots:
    """Owns who has which slot, which keys are in memory, and of which partition each slot is."""

    def __init__(self, slabs: Slabs, store: Store = NoStore(), most: int = sys.maxsize) -> None:  # noqa: B008  # it has no state
        """`slabs` lie in the store's files. `most`: keys in memory."""
        self._slabs = slabs
        self._store = store
        self._most = most
        self._keys: dict[Partition, PartitionKeys] = {}
        self._leaving: list[tuple[Partition, list[bytes]]] = []  # of the older ones, the next ones last
        self._looks: Iterator[Partition] = iter(())
        self.loads = 0  # keys that were not in memory when they were asked for
        # By slot, negative where the store does not have its key. There is one topic.
        self._owners = store.grow("owners", np.empty(0, np.int32), len(slabs.offsets))
        self._owners[~np.isin(self._owners, [_owner(partition) for partition in store.kept])] = _FREE
        slabs.resume(self._owners != _FREE)

    @property
    def keys(self) -> int:
        """Keys that have a state."""
        return sum(ours.in_memory + ours.beyond for ours in self._keys.values())

    def keys_of(self, partition: Partition) -> int:
        """Keys of a partition that have a state."""
        ours = self._of(partition)
        return ours.in_memory + ours.beyond

    def find(self, partition: Partition, keys: Sequence[bytes]) -> list[int]:
        """The slot of each of these keys, 0 for none."""
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
        """The last offset that wrote a state of the partition that is here."""
        return int(self._slabs.offsets[self._slots_of(partition)].max(initial=NO_OFFSET))

    def add(self, partition: Partition, keys: Sequence[bytes]) -> list[int]:
        """A slot for each of these keys, which have none; each is named once."""
        self._make_room(len(keys))
        slots = self._slabs.new(len(keys))
        if len(self._owners) < len(self._slabs.offsets):
            self._owners = self._store.grow("owners", self._owners, len(self._slabs.offsets))
        self._owners[slots] = -_owner(partition)
        self._of(partition).lately.update(zip(keys, slots, strict=True))
        return slots

    def put(self, slots: NDArray[np.intp], rows: StateRows) -> None:
        """These are their states now."""
        self._slabs.put(slots, rows)

    def drop(self, partition: Partition, key: bytes) -> None:
        """The key has no state any more."""
        ours = self._of(partition)
        slot = ours.lately.pop(key, 0) or ours.older.pop(key, 0) or self._load(partition, ours, [key]).get(key, 0)
        if slot:
            if self._owners[slot] > 0:
                self._store.delete(partition, key)
            self._free([slot])

    def forget(self, partition: Partition) -> None:
        """No key of it has a state."""
        self._keys.pop(partition, None)
        self._store.forget(partition)
        self._free(self._slots_of(partition).tolist())

    def _slots_of(self, partition: Partition) -> NDArray[np.intp]:
        return np.flatnonzero(np.abs(self._owners[: self._slabs.used]) == _owner(partition))

    def store_all(self, partitions: Collection[Partition], go_on: Callable[[], bool]) -> bool:
        """The store has all keys of these, unless `go_on` says no before.

        In their order: LMDB takes a million so in 0.45 s, in any other order in 2.9 (measured 2026-11).
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
        """Keys that no request used since then, among so many, each with when one did; others with each call."""
        if (partition := next(self._looks, None)) is None:
            self._looks = iter(list(self._keys))
            return
        keys, slots = self._some(partition, self._of(partition), most)
        times = self._slabs.times[slots]
        for at in np.flatnonzero((times != NO_TIME) & (times < time)).tolist():
            yield partition, keys[at], int(times[at])

    def _some(self, partition: Partition, ours: PartitionKeys, most: int) -> tuple[list[bytes], list[int]]:
        """Some keys and their slots, 0 for a key that is gone."""
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
        """Let keys leave memory before so many are added."""
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
        """A few more than must: that costs less at once."""
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

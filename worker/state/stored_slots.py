"""More keys than fit into memory: a store knows where the states of all others are.

    key ─▶ used lately, or older: in memory ─┐
       └─▶ store ────────────────────────────┴─▶ slot ─▶ its row in the slabs, which are files mapped into memory

A state has one slot as long as its key has a state, and the system keeps in memory what of the files is used. So to
bring a key in is to look its slot up, a state that changes is written once, where it is, and the store is written when
a key leaves memory that it does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import compress
from typing import Protocol

import numpy as np

from worker.core.records import Array, Partition
from worker.state.key_slots import KeySlots, PartitionKeys
from worker.state.slabs import NO_OFFSET, Slabs, in_memory

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


class StoredSlots(KeySlots):
    """Owns which keys are in memory, and of which partition each slot is."""

    def __init__(self, slabs: Slabs, store: Store, most: int) -> None:
        """`slabs` lie in the store's files. `most`: keys in memory."""
        super().__init__(slabs)
        self._store = store
        self._most = most
        # By slot. There is one topic.
        self._owners = store.grow("owners", np.empty(0, np.int32), len(slabs.offsets))
        self._owners[~np.isin(self._owners, [_owner(partition) for partition in store.kept])] = _FREE
        self._is_news = np.zeros(len(self._owners), np.bool_)  # the store does not have its key
        slabs.resume(self._owners != _FREE)

    def last_offset(self, partition: Partition) -> int:
        """The last offset that wrote a state of the partition that is here."""
        are_ours = self._owners[: self._slabs.used] == _owner(partition)
        return int(self._slabs.offsets[: self._slabs.used][are_ours].max(initial=NO_OFFSET))

    def add(self, partition: Partition, keys: Sequence[bytes]) -> list[int]:
        slots = super().add(partition, keys)
        if len(self._owners) < len(self._slabs.offsets):
            self._owners = self._store.grow("owners", self._owners, len(self._slabs.offsets))
            self._is_news = in_memory("news", self._is_news, len(self._owners))
        self._owners[slots], self._is_news[slots] = _owner(partition), True
        return slots

    def drop(self, partition: Partition, key: bytes) -> None:
        ours = self._of(partition)
        slot = ours.lately.pop(key, 0) or ours.older.pop(key, 0) or self._load(partition, ours, [key]).get(key, 0)
        if slot:
            if not self._is_news[slot]:
                self._store.delete(partition, key)
            self._free([slot])

    def forget(self, partition: Partition) -> None:
        self._keys.pop(partition, None)
        self._store.forget(partition)
        self._free(np.flatnonzero(self._owners[: self._slabs.used] == _owner(partition)).tolist())

    def store_all(self, partitions: Collection[Partition], go_on: Callable[[], bool]) -> bool:
        """The store has all keys of these, unless `go_on` says no before.

        In their order: LMDB takes a million so in 0.45 s, in any other order in 2.9 (measured 2026-11).
        """
        for partition in partitions:
            ours = self._of(partition)
            slots = ours.older | ours.lately
            news = sorted(compress(slots, self._is_news[list(slots.values())].tolist()))
            for start in range(0, len(news), STORED_AT_ONCE):
                if not go_on():
                    return False
                some = news[start : start + STORED_AT_ONCE]
                self._store_news(partition, some, [slots[key] for key in some])
        return go_on()

    def _some(self, partition: Partition, ours: PartitionKeys, most: int) -> tuple[list[bytes], list[int]]:
        keys, slots = super()._some(partition, ours, most)
        stored = self._store.some(partition, STORED_LOOKED_AT)
        return keys + [key for key, _ in stored], slots + [slot for _, slot in stored]

    def _first(self, partition: Partition) -> PartitionKeys:
        return PartitionKeys(self._store.keys_of(partition))

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
        if (are_news := self._is_news[slots]).any():
            news = sorted(compress(keys, are_news.tolist()))
            self._store_news(partition, news, [keys[key] for key in news])
        ours.beyond += len(keys)

    def _store_news(self, partition: Partition, keys: Sequence[bytes], slots: list[int]) -> None:
        self._store.put(partition, keys, slots)
        self._is_news[slots] = False

    def _free(self, slots: list[int]) -> None:
        self._owners[slots] = _FREE
        super()._free(slots)


def _owner(partition: Partition) -> int:
    return partition.number + 1

"""More keys than fit into memory: a store knows where the states of all others are.

    key ─▶ used lately ─┐
       └─▶ older ───────┼─▶ slot ─▶ its row in the slabs, which are files that are mapped into memory
           └─▶ store ───┘

A state has one slot as long as its key has a state, and the system keeps in memory what of the files is used. So to
bring a key in is to look its slot up, a state that changes is written once, where it is, and the store is written when
a key leaves memory that it does not have. Which do is decided in rounds: when memory is full, all that is there becomes
older; a key that is asked for after that is used lately again; the others leave.
"""

from __future__ import annotations

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
LOOKED_AT = 32  # keys in memory and in the store, at once, for keys that no request used for long
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


@dataclass(slots=True)
class _Keys:
    """One partition's keys in memory, with their slots. `beyond`: how many the store has alone."""

    beyond: int
    lately: dict[bytes, int] = field(default_factory=dict)
    older: dict[bytes, int] = field(default_factory=dict)
    to_look_at: list[bytes] = field(default_factory=list)  # in this round, for keys that no request used for long

    @property
    def in_memory(self) -> int:
        return len(self.lately) + len(self.older)

    def slot(self, key: bytes) -> int:
        """0 for a key that is not in memory."""
        return self.lately.get(key, 0) or self.older.get(key, 0)


class StoredSlots:
    """Owns which keys are in memory, and of which partition each slot is."""

    def __init__(self, slabs: Slabs, store: Store, most: int) -> None:
        """`slabs` lie in the store's files. `most`: keys in memory."""
        self._slabs = slabs
        self._store = store
        self._most = most
        self._keys: dict[Partition, _Keys] = {}
        self._leaving: list[tuple[Partition, list[bytes]]] = []  # of the older ones, the next ones last
        self._looks: Iterator[Partition] = iter(())
        self.loads = 0  # keys that were not in memory when they were asked for
        # By slot. There is one topic.
        self._owners = store.grow("owners", np.empty(0, np.int32), len(slabs.offsets))
        self._owners[~np.isin(self._owners, [_owner(partition) for partition in store.kept])] = _FREE
        self._is_news = np.zeros(len(self._owners), np.bool_)  # the store does not have its key
        slabs.resume(self._owners != _FREE)

    @property
    def keys(self) -> int:
        """Keys that have a state."""
        return sum(ours.in_memory + ours.beyond for ours in self._keys.values())

    def keys_of(self, partition: Partition) -> int:
        """Keys of a partition that have a state."""
        ours = self._of(partition)
        return ours.in_memory + ours.beyond

    def last_offset(self, partition: Partition) -> int:
        """The last offset that wrote a state of the partition that is here."""
        are_ours = self._owners[: self._slabs.used] == _owner(partition)
        return int(self._slabs.offsets[: self._slabs.used][are_ours].max(initial=NO_OFFSET))

    def find(self, partition: Partition, keys: Sequence[bytes]) -> Iterator[int]:
        """The slot of each of these keys, 0 for none."""
        ours = self._of(partition)
        slots = list(map(ours.lately.get, keys, repeat(0)))
        if all(slots):
            return iter(slots)
        missing = dict.fromkeys([key for key, slot in zip(keys, slots, strict=True) if not slot])
        found = self._find(partition, ours, list(missing))
        return iter([slot or found.get(key, 0) for key, slot in zip(keys, slots, strict=True)])

    def add(self, partition: Partition, keys: Sequence[bytes]) -> list[int]:
        """A slot for each of these keys, which have none; each is named once."""
        slots = self._slabs.new(len(keys))
        if len(self._owners) < len(self._slabs.offsets):
            self._owners = self._store.grow("owners", self._owners, len(self._slabs.offsets))
            self._is_news = in_memory("news", self._is_news, len(self._owners))
        self._owners[slots], self._is_news[slots] = _owner(partition), True
        self._of(partition).lately.update(zip(keys, slots, strict=True))
        self._make_room()
        return slots

    def put(self, slots: NDArray[np.intp], rows: StateRows) -> None:
        """These are their states now."""
        self._slabs.put(slots, rows)

    def drop(self, partition: Partition, key: bytes) -> None:
        """The key has no state any more."""
        ours = self._of(partition)
        slot = ours.lately.pop(key, 0) or ours.older.pop(key, 0)
        if not slot and ours.beyond:
            [slot] = self._store.get(partition, [key])
            ours.beyond -= bool(slot)
        if slot:
            if not self._is_news[slot]:
                self._store.delete(partition, key)
            self._free([slot])

    def forget(self, partition: Partition) -> None:
        """No key of it has a state."""
        self._keys.pop(partition, None)
        self._store.forget(partition)
        self._free(np.flatnonzero(self._owners[: self._slabs.used] == _owner(partition)).tolist())

    def unused_since(self, time: int) -> Iterator[tuple[Partition, bytes, int]]:
        """Some of the keys that no request used since then, each with when one did; others with each call."""
        partition = next(self._looks, None)
        if partition is None:
            self._looks = iter(list(self._keys))
            return
        ours, some = self._of(partition), list(self._store.some(partition, LOOKED_AT))
        ours.to_look_at = ours.to_look_at or [*ours.lately, *ours.older]
        some += [(key, slot) for key in ours.to_look_at[-LOOKED_AT:] if (slot := ours.slot(key))]
        del ours.to_look_at[-LOOKED_AT:]
        times = self._slabs.times[[slot for _, slot in some]]
        for at in np.flatnonzero((times != NO_TIME) & (times < time)).tolist():
            yield partition, some[at][0], int(times[at])

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

    def _of(self, partition: Partition) -> _Keys:
        if (ours := self._keys.get(partition)) is None:
            ours = self._keys[partition] = _Keys(self._store.keys_of(partition))
        return ours

    def _find(self, partition: Partition, ours: _Keys, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Where those are of these keys that have a state: they were not used lately, and now they were."""
        found = dict(zip(keys, map(ours.older.pop, keys, repeat(0)), strict=True))
        if ours.beyond and (rest := [key for key, slot in found.items() if not slot]):
            slots = self._store.get(partition, rest)
            found.update(zip(rest, slots, strict=True))
            loaded = len(rest) - slots.count(0)
            ours.beyond -= loaded
            self.loads += loaded
        found = {key: slot for key, slot in found.items() if slot}
        ours.lately |= found
        self._make_room()
        return found

    def _make_room(self) -> None:
        """Let some keys leave memory where it is full, and a few more than must: that costs less at once."""
        too_many = sum([ours.in_memory for ours in self._keys.values()]) - self._most
        if too_many <= 0:
            return
        too_many += min(int(self._most * SHARE_LEAVES), MOST_LEAVE)
        while too_many > 0:
            if not self._leaving:
                self._begin_round()
            partition, keys = self._leaving[-1]
            some = keys[-too_many:]
            del keys[-too_many:]
            if not keys:
                self._leaving.pop()
            too_many -= self._let_go(partition, some)

    def _begin_round(self) -> None:
        """All older ones have left or were used: those used lately are the older ones now."""
        for partition, ours in self._keys.items():
            ours.older, ours.lately = ours.lately, {}
            self._leaving.append((partition, list(reversed(ours.older))))

    def _let_go(self, partition: Partition, keys: Sequence[bytes]) -> int:
        """These keys leave memory, except those used since. Returns how many left."""
        if (ours := self._keys.get(partition)) is None:
            return 0
        leaving = {key: slot for key in keys if (slot := ours.older.pop(key, 0))}
        if self._is_news[list(leaving.values())].any():
            news = sorted([key for key, slot in leaving.items() if self._is_news[slot]])
            self._store_news(partition, news, [leaving[key] for key in news])
        ours.beyond += len(leaving)
        return len(leaving)

    def _store_news(self, partition: Partition, keys: Sequence[bytes], slots: list[int]) -> None:
        self._store.put(partition, keys, slots)
        self._is_news[slots] = False

    def _free(self, slots: list[int]) -> None:
        self._owners[slots] = _FREE
        self._slabs.release(slots)


def _owner(partition: Partition) -> int:
    return partition.number + 1

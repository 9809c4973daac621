"""Which slot the state of each key has, and which keys leave memory where not all fit.

    key ─▶ used lately ─┐
       └─▶ older ───────┴─▶ slot ─▶ its row in the slabs

Keys leave in rounds: when memory is full, all that is there becomes older; a key that is asked for after that is used
lately again; the others leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from worker.core.records import Array, Partition
from worker.state.layout import NO_TIME
from worker.state.slabs import Slabs, StateRows

# Keys that are looked at for each one that is added. Where all are needed, a look at all of them took a millisecond.
LOOKS_EACH = 4


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
    """Owns who has which slot. All keys are in memory here; a subclass says which ones leave."""

    def __init__(self, slabs: Slabs) -> None:
        self._slabs = slabs
        self._keys: dict[Partition, PartitionKeys] = {}
        self._leaving: list[tuple[Partition, list[bytes]]] = []  # of the older ones, the next ones last
        self._looks: Iterator[Partition] = iter(())
        self.loads = 0  # keys that were not in memory when they were asked for

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

    def add(self, partition: Partition, keys: Sequence[bytes]) -> list[int]:
        """A slot for each of these keys, which have none; each is named once."""
        self._make_room(len(keys))
        slots = self._slabs.new(len(keys))
        self._of(partition).lately.update(zip(keys, slots, strict=True))
        return slots

    def put(self, slots: NDArray[np.intp], rows: StateRows) -> None:
        """These are their states now."""
        self._slabs.put(slots, rows)

    def drop(self, partition: Partition, key: bytes) -> None:
        """The key has no state any more."""
        ours = self._of(partition)
        if slot := ours.lately.pop(key, 0) or ours.older.pop(key, 0):
            self._free([slot])

    def forget(self, partition: Partition) -> None:
        """No key of it has a state."""
        if (ours := self._keys.pop(partition, None)) is not None:
            self._free([*ours.lately.values(), *ours.older.values()])

    def unused_since(self, time: int, most: int) -> Iterator[tuple[Partition, bytes, int]]:
        """Keys that no request used since then, among so many, each with when one did; others with each call."""
        if (partition := next(self._looks, None)) is None:
            self._looks = iter(list(self._keys))
            return
        keys, slots = self._some(partition, self._of(partition), most)
        times = self._slabs.times[slots]
        for at in np.flatnonzero((times != NO_TIME) & (times < time)).tolist():
            yield partition, keys[at], int(times[at])

    def _some(self, _: Partition, ours: PartitionKeys, most: int) -> tuple[list[bytes], list[int]]:
        """Some keys and their slots, 0 for a key that is gone."""
        ours.to_look_at = ours.to_look_at or [*ours.lately, *ours.older]
        keys = ours.to_look_at[-most:]
        del ours.to_look_at[-most:]
        slots = list(map(ours.lately.get, keys, repeat(0)))
        if ours.older:
            slots = [slot or ours.older.get(key, 0) for key, slot in zip(keys, slots, strict=True)]
        return keys, slots

    def _of(self, partition: Partition) -> PartitionKeys:
        if (ours := self._keys.get(partition)) is None:
            ours = self._keys[partition] = self._first(partition)
        return ours

    def _free(self, slots: list[int]) -> None:
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

    # For a subclass whose keys are not all in memory

    def _first(self, _: Partition) -> PartitionKeys:
        """The keys of a partition that has none in memory yet."""
        return PartitionKeys()

    def _load(self, _: Partition, ours: PartitionKeys, keys: Sequence[bytes]) -> dict[bytes, int]:  # noqa: ARG002  # as a subclass needs it
        """The slots of these keys, which are not in memory."""
        return {}

    def _too_many(self, in_memory: int, added: int) -> int:  # noqa: ARG002  # as above
        """How many keys leave memory, at most those that are there."""
        return 0

    def _let_go(self, partition: Partition, ours: PartitionKeys, keys: dict[bytes, int]) -> None:
        """These keys were not used lately, and are to leave memory."""


class CachedSlots(KeySlots):
    """The states in memory of a store outside: every key that is here has a slot, also one that has no state there.

    A key that a request needs stays, and so does one whose state is not stored. Nothing is written back: what may go is
    in the store. There may be more than `most` keys where the others are still needed.
    """

    def __init__(
        self, slabs: Slabs, most: int, may_go: Callable[[Partition, Sequence[bytes], Array], Sequence[bool]]
    ) -> None:
        """`may_go` is asked of keys and the offsets that wrote their states."""
        super().__init__(slabs)
        self._most = most
        self._may_go = may_go
        self._without: set[int] = set()  # slots of keys that have no state

    def has_state(self, partition: Partition, key: bytes) -> bool:
        """Whether the key, which is in memory, has one."""
        [slot] = self.find(partition, [key])
        return slot > 0 and slot not in self._without

    def put(self, slots: NDArray[np.intp], rows: StateRows) -> None:
        super().put(slots, rows)
        if self._without:
            self._without.difference_update(slots.tolist())

    def put_none(self, slots: NDArray[np.intp], offsets: Sequence[int]) -> None:
        """Their keys have no state, since these requests or ever."""
        first = self._slabs.rows(np.zeros(len(slots), np.intp))
        self._slabs.put(slots, first._replace(offsets=np.array(offsets, np.int64)))
        self._without.update(slots.tolist())

    def drop(self, partition: Partition, key: bytes) -> None:
        slots = np.array(self.find(partition, [key]))
        self.put_none(slots, self._slabs.offsets[slots].tolist())

    def _too_many(self, in_memory: int, added: int) -> int:
        return min(in_memory + added - self._most, LOOKS_EACH * added, in_memory)

    def _let_go(self, partition: Partition, ours: PartitionKeys, keys: dict[bytes, int]) -> None:
        may_go = self._may_go(partition, list(keys), self._slabs.offsets[list(keys.values())])
        stay = {key: slot for (key, slot), may in zip(keys.items(), may_go, strict=True) if not may}
        ours.lately |= stay
        self._free([slot for key, slot in keys.items() if key not in stay])

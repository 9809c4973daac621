"""Keeps states in an outside store. Memory has the states that were used lately, and the ones not stored yet.

    request ─▶ its key is in memory ─────────────────────────▶ batcher ─▶ one gather ┈▶ inference ┈▶ one write
          └──▶ held ─▶ all missing keys: one read ┈(thread)┈▶ ┘                                        │
       offset committed ◀── store acknowledged ◀┈(thread)┈ one write ◀── answers acknowledged by Kafka ◀┘

Because of this order, a state in the store proves that its request and all earlier requests of its key were answered.
If such a request is read again, because its offset was not committed, it is neither run nor answered again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from worker.core.chunk import Chunk
from worker.core.failures import BadConfiguration
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Array, Partition, Record
from worker.ports import Events
from worker.state.expiry import Expiry
from worker.state.key_slots import KeySlots, PartitionKeys
from worker.state.layout import Sieve, StateLayout
from worker.state.outside_values import OutsideValues
from worker.state.restoring import Extent, RestoredRows
from worker.state.slabs import NO_OFFSET, Slabs, StateRows
from worker.state.states import SOON, KeyStates, offsets_of

SETTING = "WORKER_STATE__STORE"
# Keys that are looked at for each key that is added. When all keys were needed, looking at all took a millisecond.
LOOKS_EACH = 4


class Asked(NamedTuple):
    """A question to the store: keys whose states are wanted. `attempt` numbers the assignments of a partition."""

    partition: Partition
    attempt: int
    keys: Sequence[bytes]


class Reads(Protocol):
    """The port to the store. Its calls do not block."""

    def ask(self, asked: Sequence[Asked]) -> None: ...

    def read(self) -> Sequence[tuple[Asked, Sequence[bytes | None]]]:
        """Returns what came since the last call: each key's value. Raises `Stop` if the store refuses us for good."""

    @property
    def trouble(self) -> str | None:
        """The reason why the store does not answer now; None if it answers."""


class NothingToRestore:
    """The `Restorer` of a worker without a changelog."""

    left = 0

    def begin(self, partition: Partition, attempt: int, extent: Extent | None) -> None: ...
    def forget(self, partitions: Sequence[Partition]) -> None: ...
    def found(self) -> RestoredRows | None: ...
    def ends(self, partitions: Collection[Partition], timeout: float) -> Mapping[Partition, Extent]:  # noqa: ARG002  # as its caller has it
        return {}


class CachedSlots(KeySlots):
    """The states of an outside store that are in memory. Every key here has a slot, even a key without a state.

    A key stays while a request needs it, and until its state is stored. So a key that leaves needs no write. There may
    be more than `most` keys while they are needed.
    """

    def __init__(
        self, slabs: Slabs, most: int, may_go: Callable[[Partition, Sequence[bytes], Array], Sequence[bool]]
    ) -> None:
        """`may_go` takes keys, and the offsets that wrote their states, and tells which keys may leave."""
        super().__init__(slabs, most=most)
        self._may_go = may_go
        self._without: set[int] = set()  # slots of keys that have no state

    def have_state(self, partition: Partition, keys: Sequence[bytes]) -> list[bool]:
        """Tells which of these keys, which must be in memory, have a state."""
        return [slot > 0 and slot not in self._without for slot in self.find(partition, keys)]

    def put(self, slots: NDArray[np.intp], rows: StateRows) -> None:
        super().put(slots, rows)
        if self._without:
            self._without.difference_update(slots.tolist())

    def put_none(self, slots: NDArray[np.intp], offsets: Sequence[int]) -> None:
        """Note that the keys of these slots have no state; `offsets`: the requests that had them forgotten, if any."""
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


class OutsideStates(KeyStates):
    """Owns the states in memory, the keys being read, and the offset up to which requests may be answered already."""

    settles_applied = True

    def __init__(  # each may be left out, as in `KeyStates`
        self,
        layout: StateLayout,
        ledger: OffsetLedger,
        reads: Reads,
        events: Events,
        *,
        most_in_memory: int,
        ttl: float | None = None,
        date: Callable[[], float] = lambda: inf,
    ) -> None:
        super().__init__(layout, ledger, NothingToRestore(), events, ttl=ttl, can_take_back=False, date=date)
        self._reads = reads
        self._values = OutsideValues(layout)
        self._cache = self._slots = CachedSlots(self._slabs, most_in_memory, self._may_go)
        self._sieve = Sieve(layout)
        self._trouble: str | None = None
        # A partition's keys that the store is to be asked for, and the keys that have not come yet (these among them).
        self._wanted: defaultdict[Partition, list[bytes]] = defaultdict(list)
        self._coming: defaultdict[Partition, set[bytes]] = defaultdict(set)
        self._attempt = 0
        self._began: dict[Partition, int] = {}  # the attempt that is going on
        self._applied_up_to: dict[Partition, int] = {}  # the last offset that may have been answered before
        # Called with keys whose states came. The stage that holds requests for them sets it.
        self.tell_here: Callable[[Partition, Sequence[bytes]], object] = lambda *_: None

    # From the store

    def missing(self, partition: Partition, keys: Sequence[bytes]) -> Sequence[bytes]:
        """Returns the keys that are not in memory, and notes them to be asked for."""
        slots = self._cache.find(partition, keys)
        if all(slots):
            return ()
        missing = [key for key, slot in zip(keys, slots, strict=True) if not slot]
        coming = self._coming[partition]
        self._wanted[partition] += [key for key in missing if key not in coming]
        coming.update(missing)
        return missing

    @property
    def wait(self) -> float | None:
        if self._trouble is not None or not any(self._coming.values()):
            return None
        return SOON

    def restore_some(self) -> bool:
        """Ask for the wanted states, and take in those that came. Returns True if any came."""
        if self._wanted:
            wanted, self._wanted = self._wanted, defaultdict(list)
            self._reads.ask([Asked(at, self._began.get(at, 0), keys) for at, keys in wanted.items()])
        if (trouble := self._reads.trouble) != self._trouble:
            if trouble is None or self._trouble is None:
                self._events.store_troubled(trouble)
            self._trouble = trouble
        came = self._reads.read()
        for asked, values in came:
            if asked.attempt == self._began.get(asked.partition, 0):
                self._take_in(asked.partition, asked.keys, values)
        return bool(came)

    def _take_in(self, partition: Partition, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        before = self._sieve.passed_over
        found, rows, missing, offsets = self._values.read(partition, values, self._sieve)
        if passed_over := self._sieve.passed_over - before:
            self._events.foreign_states(partition, passed_over)
        try:
            self._sieve.check()
        except ValueError as error:
            raise BadConfiguration(
                f"{SETTING}: the store holds {error}; name another WORKER_STATE__KEY_PREFIX, with which every key "
                "begins anew, or delete what is there"
            ) from None
        slots = np.array(self._cache.add(partition, keys), np.intp)
        self._cache.put(slots[found], rows)
        self._cache.put_none(slots[missing], offsets)
        self._cache.loads += len(found)
        last = max(int(rows.offsets.max(initial=NO_OFFSET)), max(offsets, default=NO_OFFSET))
        if last > self._ledger.settled(partition):
            self._applied_up_to[partition] = max(last, self._applied_up_to.get(partition, NO_OFFSET))
        self._coming[partition].difference_update(keys)
        self.tell_here(partition, keys)

    def _may_go(self, partition: Partition, keys: Sequence[bytes], offsets: Array) -> Sequence[bool]:
        """Tells for each key if its state is stored and no request needs it."""
        are_stored = (offsets <= self._ledger.settled(partition)).tolist()
        return [stored and not self.is_taken(partition, key) for key, stored in zip(keys, are_stored, strict=True)]

    # Requests that were answered before

    def has(self, chunk: Chunk) -> Array:
        found: Array = super().has(chunk) & self._cache.have_state(chunk.partition, chunk.keys)
        return found

    @property
    def is_unsure(self) -> bool:
        settled = self._ledger.settled
        for partition in [p for p, last in self._applied_up_to.items() if settled(p) >= last]:
            del self._applied_up_to[partition]
        return bool(self._applied_up_to)

    def are_ahead(self, chunk: Chunk) -> Array:
        """Tells for each record if it has been answered, and is part of its key's state."""
        offsets = offsets_of([chunk])
        written_by = self._slabs.offsets[self._slots.find(chunk.partition, chunk.keys)]
        last = self._applied_up_to.get(chunk.partition, NO_OFFSET)
        ahead: Array = (offsets <= last) & (written_by >= offsets)
        return ahead

    def applied_before(self, records: Sequence[Record]) -> None:
        if records:
            self._events.applied_before(records[-1], len(records))

    def _sweep(self, expiry: Expiry, most: int) -> None:
        """Does nothing: the store itself forgets keys that nothing wrote for the TTL."""

    # Partitions come and go

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Does nothing: states come when requests ask for them."""

    def forget(self, partitions: Collection[Partition]) -> None:
        super().forget(partitions)
        for partition in partitions:
            self._attempt += 1
            self._began[partition] = self._attempt
            for kept in (self._wanted, self._coming, self._applied_up_to):
                kept.pop(partition, None)

"""The states of all keys of the partitions that are ours: read and written for a whole batch at once.

    keys ─▶ slots ─▶ one gather for a batch ┈▶ inference ┈▶ one write for a batch ─▶ changes ─▶ leave with answers

Exactly once, after an abort a partition is read again from its committed offset, and its later writes are undone. The
worker takes a partition's requests only when its states are restored (`is_restoring`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, compress, count
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.core.chunk import Chunk, Prediction
from worker.core.failures import BadConfiguration
from worker.core.ordering.ledger import OffsetLedger, Stretch
from worker.core.records import Array, Fields, Partition, Record, StateUse
from worker.ports import Events
from worker.state import changes
from worker.state.expiry import Expiry
from worker.state.keeping import KeptStates
from worker.state.key_slots import KeySlots, SlotStore
from worker.state.layout import NO_TIME, StateLayout
from worker.state.restoring import Keeper, RestoredRows, Restorer
from worker.state.slabs import NO_OFFSET, Slabs, StateRows
from worker.state.undos import Undo, Undos, undos_of

SOON = 0.001  # seconds between two looks for states that come
RESTORE_SLICE = 0.005  # seconds of each turn of the loop for restoring
# The search for old states looks at so many after each batch: at more than the batch can have added.
FEWEST_LOOKS, LOOKS_EACH = 32, 2


class KeyStates:
    """Owns the states; the loop owns it. A state takes the bytes of its tensors, 16 more, and some 200 for its key."""

    settles_applied = False  # true if a request that is part of its key's state has surely been answered

    def __init__(  # noqa: PLR0913  # each may be left out
        self,
        layout: StateLayout,
        ledger: OffsetLedger,
        restorer: Restorer,
        events: Events,
        *,
        topic: str = "",
        ttl: float | None = None,
        can_take_back: bool = True,
        store: SlotStore | None = None,
        most_in_memory: int = 0,
        keeper: Keeper | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        date: Callable[[], float] = lambda: inf,
    ) -> None:
        """`ttl`: seconds of record time after which an unused state expires; record time never exceeds `date`.

        `topic` is the changelog. `can_take_back`: aborts may come. With a `store`, the states are in its files, and at
        most `most_in_memory` keys in memory. The `keeper` leaves the states to the next start.
        """
        self.layout = layout
        self._ledger = ledger
        self._restorer = restorer
        self._events = events
        self._topic = topic
        self._clock = clock
        self._attempts = count()
        self._expiry = None if ttl is None else Expiry(round(ttl * 1000), date)
        self._can_take_back = can_take_back
        self._slabs = Slabs(layout) if store is None else Slabs(layout, store.grow)
        self._slots = KeySlots(self._slabs) if store is None else KeySlots(self._slabs, store, most_in_memory)
        self.kept = None if keeper is None else KeptStates(self._uncommitted, self._slots, restorer, keeper)
        self._undos = Undos()
        self._rewound: set[Partition] = set()
        self._restoring: dict[Partition, tuple[int, float]] = {}  # the attempt, and when it began
        self._last_offsets: dict[Partition, int] = {}  # the highest offset among the restored states
        # Partitions whose states include uncommitted requests: the last such request, and the group's next offset.
        self._applied: dict[Partition, tuple[int, int]] = {}
        # Partitions where requests that will be read again wrote states; the keys that they had forgotten, by offset.
        self._ahead: dict[Partition, Mapping[bytes, int]] = {}
        # True if a request of this key runs or waits. Set by the stage that knows it.
        self.is_taken: Callable[[Partition, bytes], bool] = lambda *_: False

    @property
    def keys(self) -> int:
        """Number of keys that have a state."""
        return self._slots.keys

    @property
    def size(self) -> int:
        """Bytes of the states' tensors, in memory or in files that are mapped into it."""
        return self._slabs.given * sum(first.nbytes for first in self.layout.initial)

    @property
    def loads(self) -> int:
        """Number of keys so far that were not in memory when a batch asked for their states."""
        return self._slots.loads

    # Into a batch

    def gather(self, chunks: Sequence[Chunk]) -> Mapping[str, Array]:
        """Returns the states of a batch by input name: arrays of shape (rows, *dims), a row for each record or piece.

        Each row has a different key.
        """
        states = self._slabs.gather(self._found(chunks))
        row = 0
        for chunk in chunks:
            carried = None if chunk.reassembly is None else chunk.reassembly.carried
            others = carried or (self.layout.initial if chunk.state is StateUse.RESET else ())
            for state, other in zip(states, others, strict=False):
                state[row : row + len(chunk)] = other
            row += len(chunk)
        return {tensor.spec.name: state for tensor, state in zip(self.layout.tensors, states, strict=True)}

    def has(self, chunk: Chunk) -> Array:
        """Tells for each record if its key has a state that is not too old for it."""
        found: Array = self._found([chunk]) != 0
        return found

    def _found(self, chunks: Sequence[Chunk]) -> NDArray[np.intp]:
        """Returns the slot that each record's key has; 0 for one without a state, or with one too old for it."""
        slots = self._slots_of(chunks)
        if self._expiry is not None:
            slots[self._expiry.are_over(self._slabs.times[slots], _times_of(chunks))] = 0
        return slots

    def _slots_of(self, chunks: Sequence[Chunk]) -> NDArray[np.intp]:
        find = self._slots.find
        return np.array(list(chain.from_iterable([find(c.partition, c.keys) for c in chunks])), np.intp)

    def are_ahead(self, chunk: Chunk) -> Array:
        """Tells for each record if its key's state includes it or a later one, and the state before it is gone."""
        gone = self._ahead.get(chunk.partition)
        if gone is None:
            return np.zeros(len(chunk), np.bool_)
        keys = chunk.keys
        written_by = self._slabs.offsets[self._slots.find(chunk.partition, keys)]
        forgotten_by = np.array([gone.get(key, NO_OFFSET) for key in keys])
        ahead: Array = np.maximum(written_by, forgotten_by) >= offsets_of([chunk])
        return ahead

    def applied_before(self, records: Sequence[Record]) -> None:
        """Note records that are not run, because they were answered and are part of their keys' states."""

    @property
    def wait(self) -> float | None:
        """The most seconds that the loop may wait while states are coming; None if it may wait as long as it likes."""
        return SOON if self._restoring else None

    @property
    def is_unsure(self) -> bool:
        """True if `are_ahead` may be true of a record."""
        return bool(self._ahead)

    # Out of the model's outputs

    def conclude(self, predictions: Iterable[Prediction]) -> None:
        """Write the next states of these records, each once. A record whose place is no longer ours is ignored."""
        groups: dict[int, list[Prediction]] = {}
        for prediction in predictions:
            chunk, states = prediction.chunk, prediction.states
            assert chunk.places is not None
            if states is not None and chunk.state is not StateUse.READ and self._ledger.knows(chunk.places):
                groups.setdefault(id(states), []).append(prediction)
        written = sum(map(self._write, groups.values()))
        if self._expiry is not None:
            self._sweep(self._expiry, max(FEWEST_LOOKS, LOOKS_EACH * written))

    def leave(self, stretch: Stretch) -> list[Fields]:
        """The changelog's messages that go with these answers, which leave now: tombstones of expired keys, and states.

        Only answered requests decide which keys have expired. A request that has run may be hours newer than an earlier
        one that still waits: its tombstone would be committed before the earlier request used that state.
        """
        places, start, stop = stretch
        if places.changes is None:
            return []
        found: list[Fields | None] = places.changes[start:stop]
        places.changes[start:stop] = [None] * (stop - start)
        leaving = list(filter(None, found))
        if self._expiry is None or not leaving:
            return leaving
        offsets = list(compress(places.offsets[start:stop], found))
        times = [NO_TIME if time is None else time for time in compress(places.published_ms[start:stop], found)]
        self._expiry.came(stretch.partition, max(times), offsets[-1])
        old = self._expiry.take_old(stretch.partition)
        gone = self._forgotten_with(stretch, offsets, old, self._expiry) if old else ()
        number, by = stretch.partition.number, self._expiry.latest(stretch.partition)
        # Tombstones first: a state that leaves may be of one of these keys.
        return [*(changes.forgotten(self._topic, number, key, by) for key in gone), *leaving]

    def _forgotten_with(
        self, stretch: Stretch, offsets: Sequence[int], keys: Sequence[bytes], expiry: Expiry
    ) -> Sequence[bytes]:
        """Drop and return the keys that are still old and not in use; their tombstones go with these answers.

        A state whose own request is not answered yet stays, because its changelog message follows the tombstone.
        """
        partition = stretch.partition
        slots = np.array(self._slots.find(partition, keys), np.intp)
        times, written_by = self._slabs.times[slots].tolist(), self._slabs.offsets[slots].tolist()
        are_over = [
            offset < offsets[0] and expiry.is_to_be_dropped(partition, time) and not self.is_taken(partition, key)
            for key, time, offset in zip(keys, times, written_by, strict=True)
        ]
        gone, rows = list(compress(keys, are_over)), slots[are_over]
        if self._can_take_back and gone:
            last = np.full(len(gone), offsets[-1])
            self._undos.remember([Undo(stretch.places.line, gone, last, rows != 0, self._slabs.rows(rows))])
        for key in gone:
            self._slots.drop(partition, key)
        return gone

    def _sweep(self, expiry: Expiry, most: int) -> None:
        """Look at `most` states. The next answer forgets those that are too old for every later request."""
        for partition, key, time in self._slots.unused_since(expiry.oldest, most):
            if expiry.is_to_be_dropped(partition, time):
                expiry.is_old(partition, key)

    def _write(self, group: Sequence[Prediction]) -> int:
        """Write the next states that the predictions of one inference leave. Returns the number of keys."""
        given, chunks = group[0].states, [prediction.chunk for prediction in group]
        assert given is not None
        rows = [row for chunk, _, start, _ in group for row in range(start, start + len(chunk))]
        is_whole = len(rows) == len(given[0]) and rows[0] == 0  # nearly always true; then they are in order
        arrays = given if is_whole else [array[rows] for array in given]
        before, offsets, times = self._slots_of(chunks), offsets_of(chunks), _times_of(chunks)
        have_none = before == 0
        if self._expiry is not None:
            have_none |= self._expiry.are_over(self._slabs.times[before], times)
            times = self._expiry.by_now(times)
        used = np.maximum(times, self._slabs.times[before])
        self._put(chunks, before, StateRows(arrays, offsets, used))
        values, at = self.layout.written(offsets, used, have_none, arrays), 0
        for chunk in chunks:
            changes.note(self._topic, chunk, values[at : at + len(chunk)])
            at += len(chunk)
        return len(rows)

    def _put(self, chunks: Sequence[Chunk], before: NDArray[np.intp], rows: StateRows) -> None:
        if self._can_take_back:
            self._undos.remember(undos_of(chunks, rows.offsets, before != 0, self._slabs.rows(before)))
        if not before.all():
            given = [self._slots.give(chunk.partition, chunk.keys) for chunk in chunks]
            before = np.array(list(chain.from_iterable(given)), np.intp)
        self._slots.put(before, rows)
        for chunk in chunks:
            for key in chunk.keys if chunk.state is StateUse.DELETE else ():
                self._slots.drop(chunk.partition, key)

    # Taken back

    def rewind(self, partitions: Collection[Partition]) -> None:
        """Note partitions that will be read again from the committed offset; later writes are undone at that point."""
        self._rewound.update(partitions)
        if self._expiry is not None:
            self._expiry.rewind(partitions)

    def take_back(self, records: Iterable[Record]) -> None:
        """Undo the writes of rewound partitions from the first of these records on: the group's committed offset."""
        for record in records if self._rewound else ():
            if record.partition in self._rewound:
                self._rewound.remove(record.partition)
                for undo in self._undos.take(record.partition, record.offset):
                    self._put_back(record.partition, undo)

    def _put_back(self, partition: Partition, undo: Undo) -> None:
        for key in compress(undo.keys, ~undo.had):
            self._slots.drop(partition, key)
        slots = self._slots.give(partition, list(compress(undo.keys, undo.had)))
        self._slots.put(np.array(slots, np.intp), undo.rows.of(undo.had))

    # Partitions come and go

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Begin to restore partitions that are ours now. Their records may be taken when their states are here."""
        for partition in partitions:
            attempt = next(self._attempts)
            self._restoring[partition] = attempt, self._clock()
            extent = None if self.kept is None else self.kept.take(partition)
            self._last_offsets[partition] = NO_OFFSET if self.kept is None else self._slots.last_offset(partition)
            self._restorer.begin(partition, attempt, extent)

    def is_restoring(self, partition: Partition) -> bool:
        """True if states of this partition may still be missing."""
        return partition in self._restoring

    @property
    def restoring(self) -> int:
        """Number of partitions whose states are not all here."""
        return len(self._restoring)

    @property
    def left_to_restore(self) -> int:
        """The approximate number of changelog records that are still to be read."""
        return self._restorer.left if self._restoring else 0

    def restore_some(self) -> bool:
        """Take over portions of restored states for a few milliseconds. Returns True if there were any."""
        if not self._restoring:
            return False
        until = self._clock() + RESTORE_SLICE
        found = self._restorer.found()
        has_some = found is not None
        while found is not None:
            if self._restoring.get(found.partition, (None,))[0] == found.attempt:
                self._restore(found)
            found = self._restorer.found() if self._clock() < until else None
        self._check_applied()  # also when the other partitions have been revoked
        return has_some

    def _restore(self, found: RestoredRows) -> None:
        """Take over one portion. A key's last record counts, except in the last portion: there a state here stays."""
        partition, keys, rows = found.partition, found.keys, found.rows
        if found.anew:
            self._slots.forget(partition)
            self._last_offsets[partition] = NO_OFFSET
            self._events.thrown_away(partition, found.anew)
        elif rows is None:
            for key in keys if self._can_take_back else self._still_forgotten(partition, keys, found.forgotten_by):
                self._slots.drop(partition, key)
        elif found.is_last:
            self._restore_last(found, rows)
        else:
            self._take_over(partition, keys, rows)
            last = int(rows["offset"].max(initial=NO_OFFSET))
            self._last_offsets[partition] = max(last, self._last_offsets[partition])
            if self._expiry is not None and len(rows):
                self._expiry.came(partition, int(rows["time"].max()), last)

    def _restore_last(self, found: RestoredRows, rows: NDArray[Any]) -> None:
        partition, keys = found.partition, found.keys
        if self._has_applied(partition, found.stands_at):
            return
        has_none = [not slot for slot in self._slots.find(partition, list(found.gone))]
        gone = dict(compress(found.gone.items(), has_none))
        new = [at for at, slot in enumerate(self._slots.find(partition, keys)) if not slot]
        if new or gone:
            self._ahead[partition] = gone
        self._take_over(partition, [keys[at] for at in new], rows[new])
        if found.extent is not None and self.kept is not None:
            self.kept.extents[partition] = found.extent
        if found.passed_over:
            self._events.foreign_states(partition, found.passed_over)
        _, since = self._restoring.pop(partition)
        self._events.restored(partition, self._slots.keys_of(partition), self._clock() - since)

    def _has_applied(self, partition: Partition, stands_at: int | None) -> bool:
        """True if the states include requests that would be read again. Then no record of the partition is taken."""
        if stands_at is None or (last := self._last_offsets[partition]) < stands_at:
            return False
        self._applied[partition] = last, stands_at
        return True

    def _check_applied(self) -> None:
        """Raises `BadConfiguration` for such partitions when all others are restored, so that it names them all."""
        if self._applied and self._applied.keys() == self._restoring.keys():
            raise BadConfiguration(_applied_words(self._applied))

    def _take_over(self, partition: Partition, keys: Sequence[bytes], rows: NDArray[Any]) -> None:
        """Write the states of these keys; a key may come twice, and its last row counts."""
        if not self._can_take_back:
            order = self._not_overtaken(np.array(self._slots.find(partition, keys), np.intp), rows["offset"])
            rows, keys = rows[order], [keys[at] for at in order.tolist()]
        slots = np.array(self._slots.give(partition, keys), np.intp)
        self._slots.put(slots, StateRows.of_values(self.layout, rows))

    def _not_overtaken(self, slots: NDArray[np.intp], offsets: Array) -> NDArray[np.intp]:
        """Returns the rows that are not older than the states here, in the order of their requests.

        At least once, a replica that stood still may have written an old state after its successor's newer one.
        """
        order = np.argsort(offsets, kind="stable")
        return order[offsets[order] >= self._slabs.offsets[slots[order]]]

    def _still_forgotten(self, partition: Partition, keys: Sequence[bytes], by: Sequence[int]) -> Sequence[bytes]:
        """Returns the keys whose state here was not written by a later request than the tombstone, at least once."""
        here = self._slabs.offsets[self._slots.find(partition, keys)].tolist()
        return [key for key, offset, latest in zip(keys, by, here, strict=True) if offset >= latest or offset < 0]

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the states of partitions that are no longer ours, if they are not to be kept."""
        if self.kept is not None:
            if self.kept.has_ended:
                return
            self.kept.forget(partitions)
        self._rewound.difference_update(partitions)
        self._restorer.forget([p for p in partitions if self._restoring.pop(p, None) is not None])
        self._undos.forget(partitions)
        if self._expiry is not None:
            self._expiry.rewind(partitions)
        for partition in partitions:
            self._slots.forget(partition)
            for ours in (self._ahead, self._applied, self._last_offsets):
                ours.pop(partition, None)

    def _uncommitted(self) -> Collection[Partition]:
        return self._rewound | self._ahead.keys()


def _applied_words(applied: Mapping[Partition, tuple[int, int]]) -> str:
    told = ", ".join(f"{at}: the request at offset {last}, next {next_one}" for at, (last, next_one) in applied.items())
    reset = " ".join(f"--topic {at.topic}:{at.number} --to-offset {last + 1}" for at, (last, _) in applied.items())
    return (
        f"WORKER_KAFKA__CHANGELOG_TOPIC: it has states of requests that the group has not committed ({told}); exactly "
        "once they would be applied twice. Offsets of the group were deleted or set back, or the request topic was "
        "made anew. Stop all workers. To go on where the states are, set each offset: `kafka-consumer-groups.sh "
        f"--reset-offsets {reset} --execute`, one topic a call. To apply the requests again, name another changelog"
    )


def offsets_of(chunks: Sequence[Chunk]) -> Array:
    return np.array([record[1] for chunk in chunks for record in chunk.records], np.int64)


def _times_of(chunks: Sequence[Chunk]) -> Array:
    times = [NO_TIME if record[5] is None else record[5] for chunk in chunks for record in chunk.records]
    return np.array(times, np.int64)

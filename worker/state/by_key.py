"""Lets one record of a key through at a time: later records of the key wait here, in order, and delay no other key.

    decoded ─▶ its key is free ─▶ batcher
          └──▶ its key is taken: waits ─▶ (the earlier record is concluded) ─▶ batcher

This stage comes before the batcher. So a batch never holds two records of one key, and two inferences never use one
key at once. A record of several rows is a sequence: each row waits for the row before it. A record that has waited here
does not wait again for others to share its batch.

With an outside store, `StateFetch` comes between this stage and the batcher. It holds a record until the state of its
key has arrived. It holds one record of a key at most, so no record overtakes another. The ledger counts held records:
when the store is unreachable they reach the ledger's bounds, and the worker takes no more records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from worker.core.chunk import Chunk, cut
from worker.core.ordering.ledger import Line
from worker.core.records import BatchKind, Partition
from worker.ports import NextStage
from worker.state.outside_states import OutsideStates

# Waiting records of up to so many bytes in the mean stay one chunk, because many often go on together, and many small
# chunks are slow. The chunk stays in memory until its last record has gone on, so large records are parted.
SMALL = 4096


@dataclass(slots=True)
class _Keys:
    """One partition during one assignment: the keys that are taken, and the records that wait for them, by index."""

    line: Line
    taken: set[bytes] = field(default_factory=set)
    waiting: dict[bytes, deque[tuple[Chunk, int]]] = field(default_factory=dict)


class ByKey:
    """The stage before the batcher. Owns the records that wait."""

    def __init__(self, stage: NextStage) -> None:
        """`stage`: the batcher, or the `StateFetch` before it."""
        self._next_stage = stage
        self._lines: dict[Partition, _Keys] = {}
        self.waiting = 0  # records, or rows of a sequence

    @property
    def backlog(self) -> int:
        """Full groups that wait for a lane."""
        return self._next_stage.backlog

    def is_taken(self, partition: Partition, key: bytes) -> bool:
        """True if a record of this key runs or waits."""
        ours = self._lines.get(partition)
        return ours is not None and key in ours.taken

    def by_batch(self, chunk: Chunk) -> Iterator[tuple[BatchKind, Chunk]]:
        """The chunk's records in parts that each fit into one batch. No part overtakes an earlier record."""
        start = 0
        for _, alike in groupby(chunk.shapes):
            stop = start + sum(1 for _ in alike)
            yield from self._next_stage.by_batch(chunk.take(start, stop))
            start = stop

    def add(self, chunk: Chunk, now: float) -> None:
        """Pass the records to the next stage, each at once or when its key is free."""
        ours = self._keys_of(chunk)
        if max(chunk.rows) == 1:
            self._add_rows(ours, chunk, now)
            return
        start = 0
        for at, rows in enumerate(chunk.rows):
            if rows > 1:
                if at > start:
                    self._add_rows(ours, chunk.take(start, at), now)
                self._add_sequence(ours, chunk.take(at, at + 1), now)
                start = at + 1
        if start < len(chunk):
            self._add_rows(ours, chunk.take(start, len(chunk)), now)

    def concluded(self, chunks: Iterable[Chunk], now: float) -> None:
        """Free the keys of records that have their outcomes: the next record of each key may go on."""
        released: dict[Chunk, list[int]] = {}
        for chunk in chunks:
            assert chunk.places is not None
            ours = self._lines.get(chunk.partition)
            if ours is None or ours.line is not chunk.places.line:
                continue
            keys = chunk.keys
            ours.taken.difference_update(keys)
            if ours.waiting:
                for key in filter(ours.waiting.__contains__, keys):
                    self._release(ours, key, released)
        for chunk, indexes in released.items():
            self._next_stage.add_late(chunk.pick(sorted(indexes)), now)

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the waiting records of these partitions."""
        for partition in partitions:
            ours = self._lines.pop(partition, None)
            if ours is not None:
                self.waiting -= sum(map(len, ours.waiting.values()))
        self._next_stage.forget(partitions)

    def _keys_of(self, chunk: Chunk) -> _Keys:
        assert chunk.places is not None
        line = chunk.places.line
        ours = self._lines.get(line.partition)
        if ours is None or ours.line is not line:
            ours = self._lines[line.partition] = _Keys(line)
        return ours

    def _add_rows(self, ours: _Keys, chunk: Chunk, now: float) -> None:
        """Pass on the records whose keys are free, as one chunk, and let the others wait."""
        keys, taken = chunk.keys, ours.taken
        if len(set(keys)) < len(keys) or not taken.isdisjoint(keys):
            free, late = list[int](), list[int]()
            for at, key in enumerate(keys):
                (late if key in taken else free).append(at)
                taken.add(key)
            self._wait(ours, chunk.pick(late))
            if not free:
                return
            chunk = chunk.pick(free)
        taken.update(keys)
        self._next_stage.add(chunk, now)

    def _add_sequence(self, ours: _Keys, one: Chunk, now: float) -> None:
        """Pass on the first row of this record if its key is free; the others wait."""
        first, *rest = cut(one, 1)
        [key] = one.keys
        if key in ours.taken:
            rest = [first, *rest]
        for piece in rest:
            self._wait(ours, piece)
        if key not in ours.taken:
            ours.taken.add(key)
            self._next_stage.add(first, now)

    def _wait(self, ours: _Keys, chunk: Chunk) -> None:
        is_small = sum(chunk.sizes) <= SMALL * len(chunk)
        for at, key in enumerate(chunk.keys):
            one = (chunk, at) if is_small else (chunk.take(at, at + 1), 0)
            ours.waiting.setdefault(key, deque()).append(one)
        self.waiting += len(chunk)

    def _release(self, ours: _Keys, key: bytes, released: dict[Chunk, list[int]]) -> None:
        """Give the free key to its next record. Rows of a sequence that has failed already are dropped."""
        queue = ours.waiting[key]
        while queue:
            chunk, at = queue.popleft()
            self.waiting -= 1
            if not queue:
                del ours.waiting[key]
            if chunk.reassembly is None or not chunk.reassembly.is_over:
                ours.taken.add(key)
                released.setdefault(chunk, []).append(at)
                return


@dataclass(slots=True)
class _Held:
    chunk: Chunk
    missing: int  # keys


class StateFetch:
    """The stage between `ByKey` and the batcher. Owns the records that wait for a state."""

    def __init__(self, batcher: NextStage, states: OutsideStates, clock: Callable[[], float]) -> None:
        self._batcher = batcher
        self._states = states
        self._clock = clock
        self._held: dict[Partition, dict[bytes, _Held]] = {}
        states.tell_here = self._release
        self.by_batch: Callable[[Chunk], Iterable[tuple[BatchKind, Chunk]]] = batcher.by_batch

    @property
    def backlog(self) -> int:
        """Full groups that wait for a lane."""
        return self._batcher.backlog

    @property
    def waiting(self) -> int:
        """Number of records whose state is missing."""
        return sum(map(len, self._held.values()))

    def add(self, chunk: Chunk, now: float) -> None:
        """Pass the records to the batcher, at once or when their states are here."""
        self._pass_on(chunk, now, self._batcher.add)

    def add_late(self, chunk: Chunk, now: float) -> None:
        """Do as `add` for records that have waited already: they do not linger again."""
        self._pass_on(chunk, now, self._batcher.add_late)

    def concluded(self, chunks: Iterable[Chunk], now: float) -> None:
        """Do nothing: no record waits here for another's outcome."""

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the held records of these partitions."""
        for partition in partitions:
            self._held.pop(partition, None)
        self._batcher.forget(partitions)

    def _pass_on(self, chunk: Chunk, now: float, add: Callable[[Chunk, float], None]) -> None:
        """Hold the records whose states are missing, as one chunk: one read of the store brings them all."""
        keys = chunk.keys
        if missing := set(self._states.missing(chunk.partition, keys)):
            late = [at for at, key in enumerate(keys) if key in missing]
            held = _Held(chunk.pick(late), len(missing))
            self._held.setdefault(chunk.partition, {}).update(dict.fromkeys(missing, held))
            if len(late) == len(keys):
                return
            chunk = chunk.pick([at for at, key in enumerate(keys) if key not in missing])
        add(chunk, now)

    def _release(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """Pass on the records whose last missing state is here."""
        by_key, now = self._held.get(partition, {}), self._clock()
        for key in keys:
            if (held := by_key.pop(key, None)) is not None:
                held.missing -= 1
                if not held.missing:
                    self._batcher.add_late(held.chunk, now)

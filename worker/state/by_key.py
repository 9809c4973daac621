"""Lets one request of a key through at a time: later requests of the key wait here, in order, and delay no other key.

    decoded ─▶ its key is free ─▶ batcher
          └──▶ its key is taken: waits ─▶ (the earlier request is concluded) ─▶ batcher

This stage comes before the batcher. So a batch never holds two requests of one key, and two inferences never use one
key at once. A request of several rows is a sequence: each row waits for the row before it. A request that has waited
here does not wait again for others to share its batch.

With an outside store, `StateFetch` comes between this stage and the batcher. It holds a request until the states of its
keys have arrived. It holds one request of a key at most, so no request overtakes another. The ledger counts held
requests: when the store is unreachable they reach the ledger's bounds, and the worker takes no more records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from worker.core.batching.batcher import Batcher
from worker.core.records import BatchKind, Line, Partition, Request
from worker.core.runs import Run
from worker.core.tensors.stacking import cut
from worker.ports import NextStage
from worker.state.outside_states import OutsideStates


@dataclass(slots=True)
class _Keys:
    """One partition during one assignment: the keys that are taken, and the requests that wait for them."""

    line: Line
    taken: set[bytes] = field(default_factory=set)
    waiting: dict[bytes, deque[Request]] = field(default_factory=dict)


_NONE: frozenset[bytes] = frozenset()


class ByKey:
    """The stage before the batcher. Owns the requests that wait."""

    def __init__(self, stage: NextStage) -> None:
        """`stage`: the batcher, or the `StateFetch` before it."""
        self._next_stage = stage
        self.kind: Callable[[Request], BatchKind] = stage.kind
        self._lines: dict[Partition, _Keys] = {}
        self.waiting = 0  # requests, or rows of a sequence

    @property
    def backlog(self) -> int:
        """Full groups that wait for a lane."""
        return self._next_stage.backlog

    def stops(self, run: Run) -> Iterator[int]:
        """Yields the ends of the parts to cut the run into: a record whose key is taken is a part alone.

        The caller adds each part before it asks for the next one.
        """
        keys, count, stop = run.keys, len(run.records), 0
        if run.rows_each > 1:  # each record is a sequence
            yield from range(1, count + 1)
            return
        taken = self._taken(run.record.partition)
        are_free = len(set(keys)) == count and taken.isdisjoint(keys)
        while stop < count:
            start, most = stop, min(stop + self._next_stage.room(run), count)
            if are_free:
                stop = most
            else:
                taken = self._taken(run.record.partition)
                own = set[bytes]()
                while stop < most and (key := keys[stop]) not in taken and key not in own:
                    own.add(key)
                    stop += 1
            stop = max(stop, start + 1)
            yield stop

    def is_taken(self, partition: Partition, key: bytes) -> bool:
        """True if a request of this key runs or waits."""
        return key in self._taken(partition)

    def add(self, request: Request, now: float) -> None:
        """Pass the request to the next stage, at once or when its key is free."""
        ours = self._keys_of(request)
        if isinstance(request, Run):
            ours.taken.update(request.keys)
            self._next_stage.add(request, now)
            return
        key = request.record.key or b""
        first, *rest = [request] if request.rows == 1 else cut(request, 1)
        if key in ours.taken:
            self._wait(ours, key, (first, *rest))
            return
        ours.taken.add(key)
        if rest:
            self._wait(ours, key, rest)
        self._next_stage.add(first, now)

    def concluded(self, requests: Iterable[Request], now: float) -> None:
        """Free the keys of requests that have their outcomes: the next request of each key may go on."""
        for request in requests:
            assert request.place is not None
            ours = self._lines.get(request.record.partition)
            if ours is None or ours.line is not request.place.line:
                continue
            keys = request.keys if isinstance(request, Run) else (request.record.key or b"",)
            ours.taken.difference_update(keys)
            if ours.waiting:
                for key in filter(ours.waiting.__contains__, keys):
                    self._release(ours, key, now)

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the waiting requests of these partitions."""
        for partition in partitions:
            ours = self._lines.pop(partition, None)
            if ours is not None:
                self.waiting -= sum(map(len, ours.waiting.values()))
        self._next_stage.forget(partitions)

    def _taken(self, partition: Partition) -> set[bytes] | frozenset[bytes]:
        ours = self._lines.get(partition)
        return _NONE if ours is None else ours.taken

    def _keys_of(self, request: Request) -> _Keys:
        assert request.place is not None
        line = request.place.line
        ours = self._lines.get(line.partition)
        if ours is None or ours.line is not line:
            ours = self._lines[line.partition] = _Keys(line)
        return ours

    def _wait(self, ours: _Keys, key: bytes, requests: Collection[Request]) -> None:
        ours.waiting.setdefault(key, deque()).extend(requests)
        self.waiting += len(requests)

    def _release(self, ours: _Keys, key: bytes, now: float) -> None:
        """Give the free key to its next request. Rows of a sequence that has failed already are dropped."""
        queue = ours.waiting[key]
        while queue:
            request = queue.popleft()
            self.waiting -= 1
            if not queue:
                del ours.waiting[key]
            if request.reassembly is None or not request.reassembly.is_over:
                ours.taken.add(key)
                self._next_stage.add_late(request, now)
                return


@dataclass(slots=True)
class _Held:
    request: Request
    missing: int  # keys


class StateFetch:
    """The stage between `ByKey` and the batcher. Owns the requests that wait for a state."""

    def __init__(self, batcher: Batcher, states: OutsideStates, clock: Callable[[], float]) -> None:
        self._batcher = batcher
        self._states = states
        self._clock = clock
        self._held: dict[Partition, dict[bytes, _Held]] = {}
        states.tell_here = self._release
        self.kind: Callable[[Request], BatchKind] = batcher.kind
        self.room: Callable[[Run], int] = batcher.room

    @property
    def backlog(self) -> int:
        """Full groups that wait for a lane."""
        return self._batcher.backlog

    @property
    def waiting(self) -> int:
        """Number of held requests; a `Run` counts once."""
        return len({id(held) for by_key in self._held.values() for held in by_key.values()})

    def add(self, request: Request, now: float) -> None:
        """Pass the request to the batcher, at once or when its states are here."""
        self._pass_on(request, now, self._batcher.add)

    def add_late(self, request: Request, now: float) -> None:
        """Do as `add` for a request that has waited already: it does not linger again."""
        self._pass_on(request, now, self._batcher.add_late)

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the held requests of these partitions."""
        for partition in partitions:
            self._held.pop(partition, None)
        self._batcher.forget(partitions)

    def _pass_on(self, request: Request, now: float, add: Callable[[Request, float], None]) -> None:
        partition = request.record.partition
        keys: Sequence[bytes] = request.keys if isinstance(request, Run) else (request.record.key or b"",)
        if missing := self._states.missing(partition, keys):
            held = _Held(request, len(missing))
            self._held.setdefault(partition, {}).update(dict.fromkeys(missing, held))
        else:
            add(request, now)

    def _release(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """Pass on the requests whose last missing state is here."""
        by_key, now = self._held.get(partition, {}), self._clock()
        for key in keys:
            if (held := by_key.pop(key, None)) is not None:
                held.missing -= 1
                if not held.missing:
                    self._batcher.add_late(held.request, now)

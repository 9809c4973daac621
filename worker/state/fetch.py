"""Requests whose key's state is not in memory are held here until it has come from the store.

    `ByKey` ─▶ all its keys are in memory ─▶ batcher
             └──▶ held ─▶ (the last of them came) ─▶ batcher

Stands behind `ByKey`, so of each key one request is here at most, and none goes past another of its key. What is
held counts in the ledger: a store that is away fills its bounds, and then nothing more is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from worker.core.batching.batcher import Batcher
from worker.core.records import BatchKind, Partition, Request
from worker.core.runs import Run
from worker.state.outside_states import OutsideStates


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
        """Requests that are held; several that travel as one count once."""
        return len({id(held) for by_key in self._held.values() for held in by_key.values()})

    def add(self, request: Request, now: float) -> None:
        """Find the request company, once its states are here."""
        if self._is_ready(request):
            self._batcher.add(request, now)

    def add_late(self, request: Request, now: float) -> None:
        """Find company for a request that has waited already."""
        if self._is_ready(request):
            self._batcher.add_late(request, now)

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop what waits of these partitions."""
        for partition in partitions:
            self._held.pop(partition, None)
        self._batcher.forget(partitions)

    def _is_ready(self, request: Request) -> bool:
        partition = request.record.partition
        keys: Sequence[bytes] = request.keys if isinstance(request, Run) else (request.record.key or b"",)
        missing = self._states.missing(partition, keys)
        if missing:
            held = _Held(request, len(missing))
            self._held.setdefault(partition, {}).update(dict.fromkeys(missing, held))
        return not missing

    def _release(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """The states of these keys are here."""
        by_key, now = self._held.get(partition, {}), self._clock()
        for key in keys:
            if (held := by_key.pop(key, None)) is not None:
                held.missing -= 1
                if not held.missing:
                    self._batcher.add_late(held.request, now)

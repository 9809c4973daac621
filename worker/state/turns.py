"""One request of a key at a time: the others wait here, in order, and hold up no other key.

    decoded ─▶ its key is free ─▶ batcher
          └──▶ its key is taken: waits ─▶ (the earlier one is concluded) ─▶ batcher

Stands before the batcher, so that a batch never holds two requests of one key, and runs of one key never overlap. A
request of several rows is a sequence: each row waits for the one before it. What was let go
waits for no company: it has waited already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from itertools import repeat
from typing import Protocol

from worker.core.records import BatchKind, Line, Partition, Request
from worker.core.runs import Run
from worker.core.tensors.stacking import cut

# Keys of one partition that are taken, each with the requests that wait for it; None: none does.
_Taken = dict[bytes, deque[Request] | None]


class Stage(Protocol):
    """Where requests go on to."""

    @property
    def backlog(self) -> int: ...
    def room(self, run: Run) -> int: ...
    def kind(self, request: Request) -> BatchKind: ...
    def add(self, request: Request, now: float) -> None: ...
    def add_late(self, request: Request, now: float) -> None: ...
    def forget(self, partitions: Collection[Partition]) -> None: ...


class KeyTurns:
    """The stage before the batcher. Owns the requests that wait."""

    def __init__(self, stage: Stage) -> None:
        """`stage`: the batcher, or what stands between."""
        self._batcher = stage
        self._lines: dict[Partition, tuple[Line, _Taken]] = {}
        self.waiting = 0  # requests, or rows of a sequence

    @property
    def backlog(self) -> int:
        """Full groups that wait for a lane."""
        return self._batcher.backlog

    def kind(self, request: Request) -> BatchKind:
        """That of the batch that the request will share."""
        return self._batcher.kind(request)

    def room(self, run: Run) -> int:
        """How many of the run's records to add at once: up to the first whose key is taken. At least one."""
        if run.rows_each > 1:
            return 1
        most = self._batcher.room(run)
        keys = run.keys if most >= len(run.records) else run.keys[:most]
        line = self._lines.get(run.record.partition)
        taken: _Taken = line[1] if line is not None else {}
        if len(set(keys)) == len(keys) and taken.keys().isdisjoint(keys):
            return most
        before: set[bytes] = set()
        at = 0
        while (key := keys[at]) not in taken and key not in before:
            before.add(key)
            at += 1
        return max(1, at)

    def is_taken(self, partition: Partition, key: bytes) -> bool:
        """Whether a request of this key runs or waits."""
        found = self._lines.get(partition)
        return found is not None and key in found[1]

    def add(self, request: Request, now: float) -> None:
        """Find the request company, once its key is free."""
        taken = self._taken(request)
        if isinstance(request, Run):
            taken.update(dict.fromkeys(request.keys))
            self._batcher.add(request, now)
            return
        key = request.record.key or b""
        first, *rest = [request] if request.rows == 1 else cut(request, 1)
        if key in taken:
            self._wait(taken, key, (first, *rest))
            return
        taken[key] = None
        if rest:
            self._wait(taken, key, rest)
        self._batcher.add(first, now)

    def concluded(self, requests: Iterable[Request], now: float) -> None:
        """These have their outcomes: the next request of each of their keys may go on."""
        for request in requests:
            assert request.place is not None
            found = self._lines.get(request.record.partition)
            if found is None or found[0] is not request.place.line:
                continue
            taken = found[1]
            if isinstance(request, Run):
                waiting = list(map(taken.pop, request.keys, repeat(None)))
                if any(waiting):
                    for key, queue in zip(request.keys, waiting, strict=True):
                        if queue:
                            taken[key] = queue
                            self._release(taken, key, now)
            else:
                self._release(taken, request.record.key or b"", now)

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop what waits of these partitions."""
        for partition in partitions:
            _, taken = self._lines.pop(partition, (None, {}))
            self.waiting -= sum(len(waiting) for waiting in taken.values() if waiting)
        self._batcher.forget(partitions)

    def _taken(self, request: Request) -> _Taken:
        assert request.place is not None
        line = request.place.line
        found = self._lines.get(line.partition)
        if found is None or found[0] is not line:
            found = self._lines[line.partition] = (line, {})
        return found[1]

    def _wait(self, taken: _Taken, key: bytes, requests: Collection[Request]) -> None:
        waiting = taken.get(key)
        if waiting is None:
            waiting = taken[key] = deque()
        waiting.extend(requests)
        self.waiting += len(requests)

    def _release(self, taken: _Taken, key: bytes, now: float) -> None:
        waiting = taken.get(key)
        while waiting:
            request = waiting.popleft()
            self.waiting -= 1
            if request.reassembly is None or not request.reassembly.is_over:  # else an earlier row of it failed
                self._batcher.add_late(request, now)
                return
        taken.pop(key, None)

"""Which requests share an inference, and when they go.

Requests of equal shapes gather in one open group. A group closes for exactly one reason:

| closed by | when |
|---|---|
| size     | the next request's rows would not fit, or the last row is taken |
| bytes    | the same, for bytes |
| linger   | its *first* record has waited `linger` seconds and a lane is idle |
| pressure | the worker may take no more, so waiting brings no company: the oldest open group goes |
| drain    | the worker is going home |

Due is not closed: a due group that no lane can start keeps filling. So batches grow by themselves under load, and a
short linger costs no throughput. Only a full group is stacked ahead of a busy lane, and an older due one goes before
it, so that a rare shape never starves behind a common one. Nothing here reads a clock: `now` is monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from worker.core.records import ClosedBy, Partition, Request
from worker.core.runs import Run
from worker.core.stacking import cut

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The rules: most rows and bytes of a batch, and the longest wait for company in seconds."""

    max_rows: int
    max_bytes: int
    linger: float

    def piece_rows(self, request: Request) -> int:
        """How many rows of this request fit into one batch: all of them, for nearly every request. At least one."""
        if request.rows <= self.max_rows and request.size <= self.max_bytes:
            return request.rows
        return max(1, min(self.max_rows, self.max_bytes * request.rows // request.size))


@dataclass(slots=True, eq=False)
class Group:
    """Requests that will share one inference. Owned by the batcher until it is handed out."""

    opened_at: float
    requests: list[Request] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    closed_by: ClosedBy = ClosedBy.LINGER

    def add(self, request: Request) -> None:
        self.requests.append(request)
        self.rows += request.rows
        self.size += request.size

    def forget(self, partitions: Collection[Partition]) -> None:
        self.requests = [r for r in self.requests if r.record.partition not in partitions]
        self.rows = sum(r.rows for r in self.requests)
        self.size = sum(r.size for r in self.requests)


class Batcher:
    """Open groups by shapes, oldest first, and full groups in the order they filled. Knows no lanes and no ledger."""

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self._open: dict[Shapes, Group] = {}  # insertion order is age: a shape's next group goes to the end
        self._full: deque[Group] = deque()

    def add(self, request: Request, now: float) -> None:
        """Find the request company. One larger than a batch is cut into pieces that come home as one."""
        rows = self._policy.piece_rows(request)
        for piece in (request,) if rows == request.rows else cut(request, rows):
            self._place(piece, now)

    def room(self, run: Run) -> int:
        """How many of the run's records to add at once: what the open group still takes, else as many as a batch does.

        At least one: a record that is more than a batch is cut when it is added.
        """
        group = self._open.get(run.shapes)
        rows, size = (group.rows, group.size) if group is not None else (0, 0)
        rows_each, size_each = run.rows_each, max(run.sizes)
        if size + size_each > self._policy.max_bytes or rows + rows_each > self._policy.max_rows:
            rows = size = 0  # it opens a group of its own
        by_rows, by_size = (self._policy.max_rows - rows) // rows_each, (self._policy.max_bytes - size) // size_each
        return max(1, min(by_rows, by_size))

    def due(self, now: float) -> Group | None:
        """What an idle lane should start: the oldest group that is full or has waited long enough."""
        oldest = self._oldest_open()
        if oldest is None or oldest.opened_at + self._policy.linger > now:
            return self._full.popleft() if self._full else None
        if self._full and self._full[0].opened_at <= oldest.opened_at:
            return self._full.popleft()
        return self._close(oldest, ClosedBy.LINGER)

    def ahead(self, now: float) -> Group | None:
        """What may be stacked while every lane is busy: nothing, unless a group is full."""
        return self.due(now) if self._full else None

    def pressed(self) -> Group | None:
        """What goes when no more may be taken: a full group, else the oldest open one, however young."""
        return self._next(ClosedBy.PRESSURE)

    def drain(self) -> Group | None:
        """What goes next when all must go; None when nothing is left."""
        return self._next(ClosedBy.DRAIN)

    @property
    def backlog(self) -> int:
        """Groups that are full and wait for a lane."""
        return len(self._full)

    @property
    def next_due(self) -> float | None:
        """When `due` will have something for an idle lane; None while nothing waits."""
        if self._full:
            return self._full[0].opened_at
        oldest = self._oldest_open()
        return None if oldest is None else oldest.opened_at + self._policy.linger

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop what waits of these partitions. A group that had closed goes as it is, with the rows that are left."""
        for group in (*self._full, *self._open.values()):
            group.forget(partitions)
        self._full = deque(group for group in self._full if group.requests)
        self._open = {shapes: group for shapes, group in self._open.items() if group.requests}

    def _place(self, request: Request, now: float) -> None:
        group = self._open.get(request.shapes)
        if group is not None and (why := self._overflow(group, request)):
            self._full.append(self._close(group, why))
            group = None
        if group is None:
            group = self._open[request.shapes] = Group(now)
        group.add(request)
        if group.rows >= self._policy.max_rows:
            self._full.append(self._close(group, ClosedBy.SIZE))
        elif group.size >= self._policy.max_bytes:
            self._full.append(self._close(group, ClosedBy.BYTES))

    def _overflow(self, group: Group, request: Request) -> ClosedBy | None:
        if group.rows + request.rows > self._policy.max_rows:
            return ClosedBy.SIZE
        if group.size + request.size > self._policy.max_bytes:
            return ClosedBy.BYTES
        return None

    def _oldest_open(self) -> Group | None:
        return next(iter(self._open.values()), None)

    def _next(self, why: ClosedBy) -> Group | None:
        if self._full:
            return self._full.popleft()
        oldest = self._oldest_open()
        return None if oldest is None else self._close(oldest, why)

    def _close(self, group: Group, why: ClosedBy) -> Group:
        group.closed_by = why
        del self._open[group.requests[0].shapes]
        return group

    def __repr__(self) -> str:
        return f"<Batcher open={[g.rows for g in self._open.values()]} full={[g.rows for g in self._full]}>"

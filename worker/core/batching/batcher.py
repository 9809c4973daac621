"""Which requests share an inference, and when they go.

Requests gather in open groups, one for each bucket: equal shapes, or shapes that are padded to equal ones. A group
closes for exactly one reason:

| closed by | when |
|---|---|
| size     | the next request's rows would not fit, or the last row is taken |
| bytes    | its bytes would not fit, or fill the batch |
| tokens   | as size, counted in elements of the largest input, padding included |
| memory   | as size, with the rows that the device has memory for, as far as it has shown |
| linger   | it is due and a lane is idle: its *first* record has waited `linger` seconds (perhaps learned:      |
|          | `linger.py`), or its most urgent one has no time left to wait |
| pressure | the worker may take no more, so waiting brings no company: the group that is due first goes |
| drain    | the worker is stopping |

A due group that no lane can start keeps filling. So batches grow by themselves under load, and a short linger costs no
throughput. Only a full group is stacked ahead of a busy lane. The group that is due first goes first, full or not, so
that a rare bucket never starves behind a common one. Nothing here reads a clock: `now` is monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from worker.core.batching.limits import Limit, MemoryLimits
from worker.core.batching.linger import Linger
from worker.core.records import Batch, BatchKind, ClosedBy, ModelKey, Partition, Request
from worker.core.runs import Run
from worker.core.tensors.buckets import NO_BUCKETS, Buckets, Shapes, tokens
from worker.core.tensors.stacking import cut

# Shapes whose bucket is remembered, and given up together when there are more; publishers choose them.
MOST_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The rules for one model: most rows, bytes and tokens of a batch, and the longest wait for company in seconds.

    `is_fixed`: the model runs at one number of rows, so a smaller batch takes no less memory, and no fewer tokens.
    """

    max_rows: int
    max_bytes: int
    linger: float
    max_tokens: int | None = None
    buckets: Buckets = NO_BUCKETS
    is_fixed: bool = False

    def limit(self, shapes: Shapes) -> Limit:
        """Of batches that run in these shapes: at least one row, which runs alone whatever it weighs."""
        limits = [Limit(self.max_rows, ClosedBy.SIZE)]
        if self.max_tokens is not None and not self.is_fixed:
            limits.append(Limit(self.max_tokens // tokens(shapes), ClosedBy.TOKENS))
        if self.buckets.axes:  # padded, a batch is larger than its requests are together
            limits.append(Limit(self.max_bytes // self.buckets.row_bytes(shapes), ClosedBy.BYTES))
        least = min(limits, key=lambda limit: limit.rows)
        return least._replace(rows=max(1, least.rows))

    def limit_of_rows(self, shapes: Shapes, row_bytes: int) -> Limit:
        """The limit of batches of requests of one row each, which take so many bytes."""
        by_bytes = Limit(max(1, self.max_bytes // row_bytes), ClosedBy.BYTES)
        return min(self.limit(shapes), by_bytes, key=lambda limit: limit.rows)

    def piece_rows(self, request: Request, most: int) -> int:
        """How many rows of this request fit into a batch of at most so many: nearly always all. At least one."""
        if request.rows <= most and request.size <= self.max_bytes:
            return request.rows
        return max(1, min(most, self.max_bytes * request.rows // request.size))


@dataclass(slots=True, eq=False)
class Bucket:
    """Where requests gather for batches of one kind: the limit of the next one, and the group that is open."""

    kind: BatchKind
    policy: BatchPolicy
    limit: Limit
    group: Group | None = None


@dataclass(slots=True, eq=False)
class Group:
    """Requests that will share one inference. Owned by the batcher until it is handed out."""

    bucket: Bucket
    limit: Limit
    age: int  # groups opened before it
    opened_at: float
    due_at: float
    requests: list[Request] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    deadline: float = inf  # of its most urgent request
    closed_by: ClosedBy = ClosedBy.LINGER

    def add(self, request: Request) -> None:
        self.requests.append(request)
        self.rows += request.rows
        self.size += request.size

    def forget(self, partitions: Collection[Partition]) -> None:
        self.requests = [r for r in self.requests if r.record.partition not in partitions]
        self.rows = sum(r.rows for r in self.requests)
        self.size = sum(r.size for r in self.requests)


def _nothing_known(_kind: BatchKind, _rows: int) -> float:
    return 0.0


class Batcher:
    """Open groups and full ones, each in the order in which they are due. Knows no lanes and no ledger."""

    def __init__(
        self,
        policies: Mapping[ModelKey, BatchPolicy],
        expected: Callable[[BatchKind, int], float] = _nothing_known,
        auto: Linger | None = None,
    ) -> None:
        """`expected`: the seconds that an inference of this kind with so many rows is expected to take.

        `auto` learns how long to wait for company, in the place of the policies' fixed linger.
        """
        self._policies = policies
        self._alone: set[ModelKey] = set()
        self._auto = auto
        self._has_news = False  # for `auto`
        self._expected = expected
        self._memory = MemoryLimits()
        # Of each model by the shapes of its requests, which may be padded to others; and the map of the model that was
        # asked for last, which is nearly always the next one's, too.
        self._by_request: dict[ModelKey, dict[Shapes, Bucket]] = {}
        self._model: ModelKey | None = None
        self._of_model: dict[Shapes, Bucket] = {}
        self._buckets: dict[BatchKind, Bucket] = {}
        self._open: dict[int, Group] = {}  # by age
        # When each is due, the first at the head. Says more than is true: of groups that closed, and of earlier plans.
        self._dues: list[tuple[float, int]] = []
        self._full: list[tuple[float, int, Group]] = []
        self._ages = count()

    def add(self, request: Request, now: float) -> None:
        """Find the request company. One larger than a batch is cut into pieces that are answered as one."""
        if request.model is not self._model:  # as `_bucket_of`, without its call for each request
            self._turn_to(request.model)
        bucket = self._of_model.get(request.shapes) or self._learn(request)
        rows = bucket.policy.piece_rows(request, bucket.limit.rows)
        for piece in (request,) if rows == request.rows else cut(request, rows):
            if self._auto is not None:
                self._auto.arrived(now, bucket.kind, piece.rows)
            self._place(bucket, piece, now)

    def add_late(self, request: Request, now: float) -> None:
        """Find company for a request that was held back: its batch is due at once."""
        bucket = self._bucket_of(request)
        self._place(bucket, request, now)
        if (group := bucket.group) is not None and now < group.due_at:
            self._bring_forward(group, now)

    def stops(self, run: Run) -> Iterator[int]:
        """Before which of the run's records to cut it; each part is to be added before the next is asked for."""
        count, stop = len(run.records), 0
        while stop < count:
            stop = min(stop + self.room(run), count)
            yield stop

    def room(self, run: Run) -> int:
        """How many of the run's records to add at once: as many as the open group still takes, else as a batch takes.

        At least one: a record that is more than a batch is cut when it is added.
        """
        bucket = self._bucket_of(run)
        group, limit, max_bytes = bucket.group, bucket.limit, bucket.policy.max_bytes
        rows, size = (group.rows, group.size) if group is not None else (0, 0)
        rows_each, size_each = run.rows_each, run.largest
        if size + size_each > max_bytes or rows + rows_each > limit.rows:
            rows = size = 0  # it opens a group of its own
        return max(1, min((limit.rows - rows) // rows_each, (max_bytes - size) // size_each))

    def kind(self, request: Request) -> BatchKind:
        """That of the batch that the request will share."""
        return self._bucket_of(request).kind

    def due(self, now: float) -> Group | None:
        """The group that an idle lane should start: full or old enough, and due first."""
        first = self._first_open()
        if first is None or first.due_at > now:
            return self._pop_full() if self._full else None
        if self._full and self._full[0][0] <= first.due_at:
            return self._pop_full()
        return self._close(first, ClosedBy.LINGER)

    def ahead(self, now: float) -> Group | None:
        """The group that may be stacked while every lane is busy: a full one."""
        return self.due(now) if self._full else None

    def pressed(self) -> Group | None:
        """The group that goes when no more may be taken: a full one, else the open one that is due first."""
        return self._next(ClosedBy.PRESSURE)

    def drain(self) -> Group | None:
        """The group that goes next when all must go: due first, as there may be no time for all. None: all are gone."""
        first = self._first_open()
        if first is None or (self._full and self._full[0] < (first.due_at, first.age)):
            return self._next(ClosedBy.DRAIN)
        return self._close(first, ClosedBy.DRAIN)

    @property
    def linger(self) -> float:
        """How long the first request of a group that opens now will wait for company at most, seconds."""
        return max(map(self._wait, self._policies.values()))

    @property
    def backlog(self) -> int:
        """Groups that are full and wait for a lane."""
        return len(self._full)

    @property
    def next_due(self) -> float | None:
        """When `due` will have something for an idle lane; None while nothing waits."""
        if self._full:
            return self._full[0][2].opened_at
        first = self._first_open()
        return None if first is None else first.due_at

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the waiting requests of these partitions. A closed group goes with the rows that are left."""
        for group in (*(group for _, _, group in self._full), *self._open.values()):
            group.forget(partitions)
        for group in [group for group in self._open.values() if not group.requests]:
            self._close(group, group.closed_by)
        self._full = [entry for entry in self._full if entry[2].requests]
        heapify(self._full)

    def ran_out_of_memory(self, batch: Batch) -> None:
        """The device had no memory for this batch: from now on batches of its kind are smaller, where that helps."""
        if self._policies[batch.model].is_fixed:
            return
        self._memory.ran_out(batch.kind, batch.rows)
        self._change_limit(batch)

    def run_alone(self, model: ModelKey) -> None:
        """From now on each row of this model is a batch of its own. Groups that are open go when they are due."""
        self._alone.add(model)
        self._forget_buckets()

    def ran(self, batch: Batch, seconds: float, now: float) -> None:
        """It took so long, and the device had memory enough: of use only after it had not for another."""
        if self._memory and self._memory.ran(batch.kind, batch.rows, batch.closed_by):
            self._change_limit(batch)
        if self._auto is not None:
            self._auto.ran(batch.kind, batch.rows, seconds, now)
            self._has_news = True

    def look_back(self, now: float) -> None:
        """Learn the wait for company from the last arrivals, after a batch: by then its burst is over."""
        if self._has_news:
            self._has_news = False
            assert self._auto is not None
            self._auto.look(now)

    # Groups open and close

    def _bucket_of(self, request: Request) -> Bucket:
        if request.model is not self._model:
            self._turn_to(request.model)
        return self._of_model.get(request.shapes) or self._learn(request)

    def _turn_to(self, model: ModelKey) -> None:
        self._model, self._of_model = model, self._by_request.setdefault(model, {})

    def _learn(self, request: Request) -> Bucket:
        """The bucket for requests like this one, for the model that was turned to."""
        if len(self._of_model) >= MOST_REMEMBERED:
            self._forget_buckets()
        policy = self._policy(request.model)
        kind = BatchKind(request.model, policy.buckets.padded(request.shapes))
        bucket = self._buckets.get(kind)
        if bucket is None:
            bucket = self._buckets[kind] = Bucket(kind, policy, self._limit(kind))
        self._of_model[request.shapes] = bucket
        return bucket

    def _forget_buckets(self) -> None:
        """Groups that are open go when they are due."""
        for of_model in self._by_request.values():
            of_model.clear()
        self._buckets.clear()

    def _limit(self, kind: BatchKind) -> Limit:
        return self._memory.limit(kind, self._policy(kind.model).limit(kind.shapes))

    def _policy(self, model: ModelKey) -> BatchPolicy:
        policy = self._policies[model]
        return replace(policy, max_rows=1) if model in self._alone else policy

    def _change_limit(self, batch: Batch) -> None:
        """Of groups like this batch that open from now on. The one that is open closes earlier, too."""
        if (bucket := self._buckets.get(batch.kind)) is None:
            return
        bucket.limit = self._limit(bucket.kind)
        if (group := bucket.group) is not None:
            group.limit = bucket.limit
            if group.rows >= group.limit.rows:
                self._fill(group, group.limit.why)

    def _place(self, bucket: Bucket, request: Request, now: float) -> None:
        group = bucket.group
        if group is not None and (why := self._overflow(group, request)):
            self._fill(group, why)
            group = None
        if group is None:
            group = self._begin(bucket, now)
        group.add(request)
        if request.deadline is not None:
            group.deadline = min(group.deadline, request.deadline)
        if group.rows >= group.limit.rows:
            self._fill(group, group.limit.why)
        elif group.size >= bucket.policy.max_bytes:
            self._fill(group, ClosedBy.BYTES)
        elif group.deadline < inf:
            self._hurry(group)

    def _overflow(self, group: Group, request: Request) -> ClosedBy | None:
        if group.rows + request.rows > group.limit.rows:
            return group.limit.why
        if group.size + request.size > group.bucket.policy.max_bytes:
            return ClosedBy.BYTES
        return None

    def _begin(self, bucket: Bucket, now: float) -> Group:
        group = bucket.group = Group(bucket, bucket.limit, next(self._ages), now, now + self._wait(bucket.policy))
        self._open[group.age] = group
        heappush(self._dues, (group.due_at, group.age))
        return group

    def _wait(self, policy: BatchPolicy) -> float:
        return policy.linger if self._auto is None else self._auto.wait

    def _hurry(self, group: Group) -> None:
        """Bring forward when it is due, if its most urgent request needs that."""
        latest = group.deadline - self._expected(group.bucket.kind, group.rows)
        if latest < group.due_at:
            self._bring_forward(group, latest)

    def _bring_forward(self, group: Group, due_at: float) -> None:
        group.due_at = due_at
        heappush(self._dues, (due_at, group.age))

    def _first_open(self) -> Group | None:
        while self._dues:
            due_at, age = self._dues[0]
            group = self._open.get(age)
            if group is not None and group.due_at == due_at:
                return group
            heappop(self._dues)
        return None

    def _next(self, why: ClosedBy) -> Group | None:
        if self._full:
            return self._pop_full()
        first = self._first_open()
        return None if first is None else self._close(first, why)

    def _pop_full(self) -> Group:
        return heappop(self._full)[2]

    def _fill(self, group: Group, why: ClosedBy) -> None:
        heappush(self._full, (group.due_at, group.age, self._close(group, why)))

    def _close(self, group: Group, why: ClosedBy) -> Group:
        """No more requests come to it."""
        group.closed_by = why
        group.bucket.group = None
        del self._open[group.age]
        return group

    def __repr__(self) -> str:
        is_open = [group.rows for group in self._open.values()]
        return f"<Batcher open={is_open} full={[group.rows for _, _, group in sorted(self._full)]}>"

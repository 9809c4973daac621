"""Decides which records share an inference, and when they go to a lane.

Chunks gather in open groups, one for each kind of batch: equal shapes, or shapes that are padded to equal ones. A chunk
is sorted into kinds by index, and cut where a group is full. A group closes for exactly one reason:

| closed by | when |
|---|---|
| size     | the next record's rows would not fit, or the last row is taken |
| bytes    | the next record's bytes would not fit, or they fill the batch |
| tokens   | like size, counted in elements of the largest input, padding included |
| memory   | like size, with as many rows as are known to fit into the device's memory |
| linger   | it is due and a lane is idle: its *first* record has waited `linger` seconds (perhaps learned:      |
|          | `linger.py`), or its most urgent record has no time left to wait |
| pressure | it is due first, and the worker may take no more, so waiting brings no company |
| drain    | the worker is stopping |

A due group that no lane can start keeps filling. So batches grow under load, and a short linger costs no throughput.
Only a full group is stacked while all lanes are busy. The group that is due first goes first, full or not, so that a
rare kind never starves behind a common one. Nothing here reads a clock: `now` is monotonic seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import accumulate, count
from math import inf
from operator import attrgetter

from worker.core.batching.limits import Limit, MemoryLimits
from worker.core.batching.linger import Linger
from worker.core.chunk import Batch, Chunk, Shapes, cut
from worker.core.records import BatchKind, ClosedBy, ModelKey, Partition
from worker.core.tensors.buckets import NO_BUCKETS, Buckets, tokens

# How many shapes have their pool remembered. Publishers choose shapes; when there are more, all are forgotten.
MOST_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The rules for one model: most rows, bytes and tokens of a batch, and the longest wait for company in seconds.

    `is_fixed`: the model always runs one number of rows, so a smaller batch takes no less memory and no fewer tokens.
    """

    max_rows: int
    max_bytes: int
    linger: float
    max_tokens: int | None = None
    buckets: Buckets = NO_BUCKETS
    is_fixed: bool = False

    def limit(self, shapes: Shapes) -> Limit:
        """The limit of batches that run in these shapes: at least one row, which runs alone however large it is."""
        limits = [Limit(self.max_rows, ClosedBy.SIZE)]
        if self.max_tokens is not None and not self.is_fixed:
            limits.append(Limit(self.max_tokens // tokens(shapes), ClosedBy.TOKENS))
        if self.buckets.axes:  # padded, a batch is larger than its records are together
            limits.append(Limit(self.max_bytes // self.buckets.row_bytes(shapes), ClosedBy.BYTES))
        least = min(limits, key=lambda limit: limit.rows)
        return least._replace(rows=max(1, least.rows))

    def limit_of_rows(self, shapes: Shapes, row_bytes: int) -> Limit:
        """The limit of batches whose records have one row of `row_bytes` bytes each."""
        by_bytes = Limit(max(1, self.max_bytes // row_bytes), ClosedBy.BYTES)
        return min(self.limit(shapes), by_bytes, key=lambda limit: limit.rows)

    def piece_rows(self, rows: int, size: int, most: int) -> int:
        """How many rows of a record fit into a batch of at most `most` rows: at least one, nearly always all."""
        if rows <= most and size <= self.max_bytes:
            return rows
        return max(1, min(most, self.max_bytes * rows // size))


@dataclass(slots=True, eq=False)
class Pool:
    """One kind of batch: the limit of its batches, and the group that is open."""

    kind: BatchKind
    policy: BatchPolicy
    limit: Limit
    group: Group | None = None


@dataclass(slots=True, eq=False)
class Group:
    """Records that will share one inference. The batcher owns it until it is handed out."""

    pool: Pool
    age: int  # how many groups were opened before it
    opened_at: float
    due_at: float
    chunks: list[Chunk] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    deadline: float = inf  # of its most urgent record
    closed_by: ClosedBy = ClosedBy.LINGER

    @property
    def kind(self) -> BatchKind:
        return self.pool.kind

    def fitting(self, chunk: Chunk, start: int) -> tuple[int, ClosedBy]:
        """The end of the chunk's records from `start` on that still fit, and why the next one does not."""
        limit = self.pool.limit
        stop = start + limit.rows - self.rows  # no more than these can fit, with one row each
        rows = [*accumulate(chunk.rows[start:stop], initial=self.rows)]
        sizes = [*accumulate(chunk.sizes[start:stop], initial=self.size)]
        by_rows = bisect_right(rows, limit.rows) - 1
        by_size = bisect_right(sizes, self.pool.policy.max_bytes) - 1
        return start + min(by_rows, by_size), limit.why if by_rows <= by_size else ClosedBy.BYTES

    def forget(self, partitions: Collection[Partition]) -> None:
        self.chunks = [chunk for chunk in self.chunks if chunk.partition not in partitions]
        self.rows = sum(sum(chunk.rows) for chunk in self.chunks)
        self.size = sum(sum(chunk.sizes) for chunk in self.chunks)


class Batcher:
    """Owns the open groups and the full ones, each in the order they are due. Knows no lanes and no ledger."""

    def __init__(
        self,
        policies: Mapping[ModelKey, BatchPolicy],
        expected: Callable[[BatchKind, int], float] = lambda *_: 0.0,
        auto: Linger | None = None,
    ) -> None:
        """`expected`: the seconds that an inference of this kind with so many rows should take.

        `auto` learns how long to wait for company, and replaces the policies' fixed linger.
        """
        self._policies = dict(policies)
        self._auto = auto
        self._has_news = False  # for `auto`
        self._expected = expected
        self._memory = MemoryLimits()
        # By the shapes of records before padding, for each model.
        self._by_shapes = defaultdict[ModelKey, dict[Shapes, Pool]](dict)
        self._pools: dict[BatchKind, Pool] = {}
        self._open: dict[int, Group] = {}  # by age
        # A heap of when each is due. It also holds entries of closed groups and earlier times, which are skipped.
        self._dues: list[tuple[float, int]] = []
        self._full: list[tuple[float, int, Group]] = []
        self._ages = count()

    def add(self, chunk: Chunk, now: float) -> None:
        """Put the records into groups. One that is larger than a batch is cut into pieces that are answered as one."""
        for pool, part in self._sorted(chunk):
            if self._auto is not None:
                rows, most = sum(part.rows), pool.limit.rows
                for start in range(0, rows, most):  # as they will share batches
                    self._auto.arrived(now, pool.kind, min(most, rows - start))
            self._place(pool, part, now)

    def add_late(self, chunk: Chunk, now: float) -> None:
        """Put records that were held back into groups, which are then due at once."""
        for pool, part in self._sorted(chunk):
            self._place(pool, part, now)
            if (group := pool.group) is not None and now < group.due_at:
                self._bring_forward(group, now)

    def by_kind(self, chunk: Chunk) -> list[tuple[BatchKind, Chunk]]:
        """The chunk's records by the kind of the batch that they will join."""
        return [(pool.kind, part) for pool, part in self._sorted(chunk)]

    def by_batch(self, chunk: Chunk) -> Iterator[tuple[BatchKind, Chunk]]:
        """The chunk's records in parts that each fit into one batch. Add each part before asking for the next."""
        for pool, part in self._sorted(chunk):
            start = 0
            while start < len(part):
                stop = start if pool.group is None else pool.group.fitting(part, start)[0]
                if stop == start:  # it opens a group of its own; a record larger than a batch is cut when it is added
                    stop = max(start + 1, Group(pool, 0, 0.0, 0.0).fitting(part, start)[0])
                yield pool.kind, part.take(start, stop)
                start = stop

    def concluded(self, chunks: Iterable[Chunk], now: float) -> None:
        """Do nothing: no record waits here for another's outcome."""

    def due(self, now: float, why: ClosedBy = ClosedBy.LINGER) -> Group | None:
        """The group that an idle lane should start: it is full or has waited enough, and is due first.

        An open one closes for this reason.
        """
        first = self._first_open()
        if first is None or first.due_at > now or (self._full and self._full[0][0] <= first.due_at):
            return heappop(self._full)[2] if self._full else None
        return self._close(first, why)

    def ahead(self, now: float) -> Group | None:
        """The group that may be stacked while every lane is busy; None unless there is a full one."""
        return self.due(now) if self._full else None

    def pressed(self) -> Group | None:
        """The group that goes when no more may be taken: a full one, or else the open group that is due first."""
        return self.due(-inf if self._full else inf, ClosedBy.PRESSURE)

    def drain(self) -> Group | None:
        """The next group of a drain: the first due, because time may not last for all. None: all are gone."""
        first = self._first_open()
        if first is not None and self._full and (first.due_at, first.age) < self._full[0][:2]:
            return self._close(first, ClosedBy.DRAIN)  # the older one of two that are due at once
        return self.due(inf, ClosedBy.DRAIN)

    @property
    def linger(self) -> float:
        """The longest wait for company, in seconds, of the first record of a group that opens now."""
        return max(map(self._wait, self._policies.values()))

    @property
    def backlog(self) -> int:
        """The number of full groups that wait for a lane."""
        return len(self._full)

    @property
    def next_due(self) -> float | None:
        """When `due` will have a group for an idle lane; None while nothing waits."""
        if self._full:
            return self._full[0][2].opened_at
        first = self._first_open()
        return None if first is None else first.due_at

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the waiting records of these partitions. A full group stays, with the rows that are left."""
        for group in (*(group for _, _, group in self._full), *self._open.values()):
            group.forget(partitions)
        for group in [group for group in self._open.values() if not group.chunks]:
            self._close(group, group.closed_by)
        self._full = [entry for entry in self._full if entry[2].chunks]
        heapify(self._full)

    def ran_out_of_memory(self, batch: Batch) -> None:
        """Make batches of this kind smaller, if that helps: the device had no memory for this batch."""
        if self._policies[batch.model].is_fixed:
            return
        self._memory.ran_out(batch.kind, batch.rows)
        self._change_limit(batch)

    def run_alone(self, model: ModelKey) -> None:
        """Make each row of this model a batch of its own from now on. Groups that are open go when they are due."""
        self._policies[model] = replace(self._policies[model], max_rows=1)
        self._forget_pools()

    def ran(self, batch: Batch, seconds: float, now: float) -> None:
        """Learn how long the batch took, and that the device had memory for it."""
        if self._memory and self._memory.ran(batch.kind, batch.rows, batch.closed_by):
            self._change_limit(batch)
        if self._auto is not None:
            self._auto.ran(batch.kind, batch.rows, seconds, now)
            self._has_news = True

    def look_back(self, now: float) -> None:
        """Learn the linger from the last arrivals if a batch has run since: then the burst of that batch is over."""
        if self._has_news:
            self._has_news = False
            assert self._auto is not None
            self._auto.look(now)

    # Groups open and close

    def _sorted(self, chunk: Chunk) -> Sequence[tuple[Pool, Chunk]]:
        """The chunk's records by the pool that takes them, in their order within each."""
        model, first, known = chunk.model, chunk.shapes[0], self._by_shapes[chunk.model]
        if chunk.shapes.count(first) == len(chunk.shapes):
            return [(known.get(first) or self._learn(model, first), chunk)]
        indexes: dict[Pool, list[int]] = {}
        for at, shapes in enumerate(chunk.shapes):
            indexes.setdefault(known.get(shapes) or self._learn(model, shapes), []).append(at)
        return [(pool, chunk.pick(its_own)) for pool, its_own in indexes.items()]

    def _learn(self, model: ModelKey, shapes: Shapes) -> Pool:
        """Remember and return the pool for records of these shapes."""
        if len(self._by_shapes[model]) >= MOST_REMEMBERED:
            self._forget_pools()
        policy = self._policies[model]
        kind = BatchKind(model, policy.buckets.padded(shapes))
        pool = self._pools.get(kind)
        if pool is None:
            pool = self._pools[kind] = Pool(kind, policy, self._limit(kind))
        self._by_shapes[model][shapes] = pool
        return pool

    def _forget_pools(self) -> None:
        """Forget all pools. Groups that are open go when they are due."""
        for of_model in self._by_shapes.values():
            of_model.clear()
        self._pools.clear()

    def _limit(self, kind: BatchKind) -> Limit:
        return self._memory.limit(kind, self._policies[kind.model].limit(kind.shapes))

    def _change_limit(self, batch: Batch) -> None:
        """Set the limit of this batch's kind. An open group that is full closes. If one is larger, all begin anew."""
        if (pool := self._pools.get(batch.kind)) is None:
            return
        pool.limit = self._limit(pool.kind)
        if (group := pool.group) is not None and group.rows >= pool.limit.rows:
            self._fill(group, pool.limit.why)
        waiting = sorted([group for _, _, group in self._full if group.pool is pool], key=attrgetter("age"))
        if not any(group.rows > pool.limit.rows for group in waiting):
            return
        self._full = [entry for entry in self._full if entry[2].pool is not pool]
        heapify(self._full)
        if (group := pool.group) is not None:  # its records came last, and stay the last
            waiting.append(self._close(group, group.closed_by))
        for group in waiting:
            for chunk in group.chunks:
                self._place(pool, chunk, group.opened_at)

    def _place(self, pool: Pool, chunk: Chunk, now: float) -> None:
        """Put the records into the pool's group, and into new ones where it is full."""
        group, rows, size = pool.group or self._begin(pool, now), sum(chunk.rows), sum(chunk.sizes)
        if group.rows + rows <= pool.limit.rows and group.size + size <= pool.policy.max_bytes:
            self._join(group, chunk, rows, size)
            return
        start = 0
        while start < len(chunk):
            group = pool.group or self._begin(pool, now)
            stop, why = group.fitting(chunk, start)
            if stop == start:
                rows = pool.policy.piece_rows(chunk.rows[start], chunk.sizes[start], pool.limit.rows)
                if rows < chunk.rows[start]:
                    for piece in cut(chunk.take(start, start + 1), rows):
                        self._place(pool, piece, now)
                    start += 1
                    continue
                if group.chunks:
                    self._fill(group, why)
                    continue
                stop = start + 1  # alone it is larger than a batch, and cannot be cut
            self._join(group, chunk.take(start, stop), sum(chunk.rows[start:stop]), sum(chunk.sizes[start:stop]))
            start = stop

    def _join(self, group: Group, chunk: Chunk, rows: int, size: int) -> None:
        """Add records to the group that have so many rows and bytes together."""
        group.chunks.append(chunk)
        group.rows += rows
        group.size += size
        if chunk.deadlines is not None:
            group.deadline = min(group.deadline, *chunk.deadlines)
        if group.deadline < inf:
            self._hurry(group)
        if group.rows >= group.pool.limit.rows:
            self._fill(group, group.pool.limit.why)
        elif group.size >= group.pool.policy.max_bytes:
            self._fill(group, ClosedBy.BYTES)

    def _begin(self, pool: Pool, now: float) -> Group:
        group = pool.group = Group(pool, next(self._ages), now, now + self._wait(pool.policy))
        self._open[group.age] = group
        heappush(self._dues, (group.due_at, group.age))
        return group

    def _wait(self, policy: BatchPolicy) -> float:
        return policy.linger if self._auto is None else self._auto.wait

    def _hurry(self, group: Group) -> None:
        """Make the group due earlier, if its most urgent record needs that."""
        latest = group.deadline - self._expected(group.kind, group.rows)
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

    def _fill(self, group: Group, why: ClosedBy) -> None:
        heappush(self._full, (group.due_at, group.age, self._close(group, why)))

    def _close(self, group: Group, why: ClosedBy) -> Group:
        """Close the group: no more records join it."""
        group.closed_by = why
        group.pool.group = None
        del self._open[group.age]
        return group

    def __repr__(self) -> str:
        is_open = [group.rows for group in self._open.values()]
        return f"<Batcher open={is_open} full={[group.rows for _, _, group in sorted(self._full)]}>"

"""In any traffic the batcher loses, repeats and reorders nothing, and no batch exceeds its limits."""

from __future__ import annotations

import random
from math import inf
from typing import NamedTuple

import numpy as np

from tests.chunks import MODEL, P0, P1, Q0, chunk, offsets, singles, spec
from tests.meeting import meeting, met, with_each_seed
from worker.core.batching.batcher import Batcher, BatchPolicy, Group
from worker.core.chunk import Batch, Chunk, Shapes
from worker.core.records import BatchKind, ClosedBy, Partition
from worker.core.tensors.buckets import NO_BUCKETS, Axis, Buckets, Spot, tokens

FULL = (ClosedBy.SIZE, ClosedBy.BYTES, ClosedBy.TOKENS, ClosedBy.MEMORY)
SHAPES: list[Shapes] = [((1,), ()), ((2,), ()), ((3,), (5,)), ((7,), ()), ((8,), ())]
BUCKETS = Buckets((Axis("input a axis 1", (2, 4, 8), {Spot(0, 0): 0}),), [spec(datatype="INT8"), spec(datatype="INT8")])


def expected(kind: BatchKind, rows: int) -> float:
    """An expected time that grows with the work; any such rule will do."""
    return 0.1 * tokens(kind.shapes) * rows


def some_policy(dice: random.Random) -> BatchPolicy:
    return BatchPolicy(
        dice.choice([1, 4, 10, 40]),
        dice.choice([30, 200, 1000, 10_000]),
        dice.choice([0.0, 1.0, 50.0]),
        dice.choice([None, None, 1, 8, 60]),
        dice.choice([NO_BUCKETS, BUCKETS]),
    )


def some_chunk(dice: random.Random, first: int, now: float) -> Chunk:
    """Up to six records of one partition, numbered from `first` on, of any shapes, rows, bytes and deadlines."""
    count = dice.choice([1, 2, 2, 4, 6])
    shapes = dice.choices(SHAPES, k=count) if dice.random() < 0.5 else [dice.choice(SHAPES)] * count
    rows = [dice.randint(1, 6) for _ in range(count)]
    sizes = [count * dice.choice([1, 9, 300]) for count in rows]
    tensors = [[bytes(size) for size in sizes] for _ in shapes[0]]
    deadlines = [now + dice.choice([inf, 0.0, 2.0, 30.0]) for _ in range(count)] if dice.random() < 0.3 else None
    numbers, partition = range(first, first + count), dice.choice([P0, P1, Q0])
    return chunk(
        *numbers, rows=rows, sizes=sizes, shapes=shapes, tensors=tensors, deadlines=deadlines, partition=partition
    )


class One(NamedTuple):
    """One record of a group, or some rows of a record that was cut."""

    partition: Partition
    number: int
    rows: int
    size: int
    shapes: Shapes
    deadline: float


def records_of(group: Group) -> list[One]:
    return [
        One(part.partition, part.records[at].offset, part.rows[at], part.sizes[at], part.shapes[at], deadline)
        for part in group.chunks
        for at, deadline in enumerate(part.deadlines or [inf] * len(part))
    ]


class Walk:
    """Adds chunks, asks for groups in every way, and removes partitions. Dice choose each step."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.policy = some_policy(dice)
        self.batcher = Batcher({MODEL: self.policy}, expected)
        self.now = 0.0
        self.waiting: dict[Shapes, list[tuple[Partition, int, int]]] = {}  # partition, number, rows that still wait
        self.added_at: dict[int, float] = {}
        self.number = 0
        self.is_urgent = False  # some request was urgent

    def go(self, steps: int) -> None:
        usual = [*[self.add] * 3, *[self.ahead, self.pressed, self.due] * 2]
        for _ in range(steps):
            self.dice.choice([*usual, self.drain, self.forget, self.ran_out_of_memory, self.ran])()
        self.drain()

    def add(self) -> None:
        """Add a chunk. Its records wait behind those that wait already, each in the line of its own bucket."""
        new = some_chunk(self.dice, self.number + 1, self.now)
        self.number += len(new)
        self.is_urgent |= new.deadlines is not None
        for at, number in enumerate(offsets([new])):
            self.added_at[number] = self.now
            line = self.waiting.setdefault(self.policy.buckets.padded(new.shapes[at]), [])
            line.append((new.partition, number, new.rows[at]))
        by_kind = self.batcher.by_kind(new)
        met("a chunk of several buckets", is_so=len(by_kind) > 1)
        assert [kind.shapes for kind, part in by_kind for _ in part.records] == [
            self.policy.buckets.padded(shapes) for _, part in by_kind for shapes in part.shapes
        ]
        self.batcher.add(new, self.now)

    def ran_out_of_memory(self) -> None:
        self.batcher.ran_out_of_memory(self.some_batch())

    def ran(self) -> None:
        batch = self.some_batch()
        for _ in range(100):
            self.batcher.ran(batch, 0.1, self.now)

    def some_batch(self) -> Batch:
        rows, padded = self.dice.randint(1, 6), self.policy.buckets.padded(self.dice.choice(SHAPES))
        feeds = {str(at): np.zeros((rows, *dims)) for at, dims in enumerate(padded)}
        return Batch([chunk(0)], feeds, rows, ClosedBy.SIZE)

    def due(self) -> None:
        self.now += self.dice.choice([0.0, 0.5, 60.0])
        next_due = self.batcher.next_due
        group = self.batcher.due(self.now)

        assert (group is not None) == (next_due is not None and next_due <= self.now)
        self.check(group, ClosedBy.LINGER)
        if group is None:
            return
        if group.closed_by is ClosedBy.LINGER:
            assert group.due_at <= self.now
            assert group.due_at <= group.opened_at + self.policy.linger
        second = self.batcher.due(self.now)
        met("two are due", is_so=second is not None)
        if second is not None:  # ready groups leave in the order of their due times
            assert second.due_at >= group.due_at
            self.check(second, ClosedBy.LINGER)

    def ahead(self) -> None:
        group = self.batcher.ahead(self.now)
        met("one is stacked ahead", is_so=group is not None)
        self.check(group, ClosedBy.LINGER)

    def pressed(self) -> None:
        group = self.batcher.pressed()

        assert (group is not None) == any(self.waiting.values())
        self.check(group, ClosedBy.PRESSURE)

    def drain(self) -> None:
        while any(self.waiting.values()):
            group = self.batcher.drain()
            assert group is not None
            self.check(group, ClosedBy.DRAIN)
        assert self.batcher.drain() is None
        assert self.batcher.next_due is None

    def forget(self) -> None:
        partitions = set(self.dice.sample([P0, P1, Q0], self.dice.randint(1, 2)))
        self.batcher.forget(partitions)
        owners = {entry[0] for entries in self.waiting.values() for entry in entries}
        met("some leave and some stay", is_so=not owners.isdisjoint(partitions) and bool(owners - partitions))
        self.waiting = {
            shapes: [entry for entry in entries if entry[0] not in partitions]
            for shapes, entries in self.waiting.items()
        }

    def check(self, group: Group | None, otherwise: ClosedBy) -> None:
        """The group is the head of its shape's line, within the limits, and closed for a true reason."""
        if group is None:
            return
        records = records_of(group)
        assert records
        (shapes,) = {self.policy.buckets.padded(one.shapes) for one in records}
        assert shapes == group.kind.shapes
        assert group.rows == sum(one.rows for one in records) <= self.policy.max_rows
        assert group.size == sum(one.size for one in records)
        assert group.size <= self.policy.max_bytes or group.rows == 1
        assert (
            self.policy.max_tokens is None or group.rows * tokens(shapes) <= self.policy.max_tokens or group.rows == 1
        )
        if self.policy.buckets.axes:
            assert group.rows * BUCKETS.row_bytes(shapes) <= self.policy.max_bytes or group.rows == 1
        assert group.closed_by in (*FULL, otherwise)
        assert group.opened_at <= min(self.added_at[one.number] for one in records)
        assert group.closed_by in FULL or group.due_at <= min(one.deadline for one in records)
        met(f"closed by {group.closed_by.value}")
        met("shapes that differ share a batch", is_so=len({one.shapes for one in records}) > 1)
        met("partitions share a batch", is_so=len({one.partition for one in records}) > 1)
        met("a row alone is more than a batch", is_so=group.rows == 1 and group.size > self.policy.max_bytes)
        for leaving in records:
            self.leave(leaving)

    def leave(self, leaving: One) -> None:
        line = self.waiting[self.policy.buckets.padded(leaving.shapes)]
        at = [number for _, number, _ in line].index(leaving.number)
        met("an urgent one overtakes", is_so=at > 0)
        assert at == 0 or self.is_urgent  # only an urgent request overtakes others of its bucket
        partition, number, rows = line.pop(at)
        assert partition == leaving.partition
        met("a request in pieces", is_so=rows > leaving.rows)
        if rows > leaving.rows:
            line.insert(at, (partition, number, rows - leaving.rows))
        else:
            assert rows == leaving.rows


@meeting(
    *(f"closed by {why.value}" for why in ClosedBy),
    "shapes that differ share a batch",
    "partitions share a batch",
    "a row alone is more than a batch",
    "two are due",
    "one is stacked ahead",
    "some leave and some stay",
    "an urgent one overtakes",
    "a request in pieces",
    "a chunk of several buckets",
)
def test_any_traffic_keeps_the_batchers_promises() -> None:
    """All requests leave in order, within the limits, in groups closed for a true reason."""
    with_each_seed(200, lambda dice: Walk(dice).go(40))


@meeting(
    "closed by size", "closed by bytes", "closed by linger", "a chunk is cut", "a record is cut", "several buckets"
)
def test_a_chunk_fills_batches_as_its_records_one_by_one() -> None:
    """The batches of each bucket hold equal records, rows and bytes, in order, and are closed for equal reasons."""
    with_each_seed(200, compare_with_singles)


def compare_with_singles(dice: random.Random) -> None:
    policy = some_policy(dice)
    by_chunks, by_records = Batcher({MODEL: policy}, expected), Batcher({MODEL: policy}, expected)
    number, now = 0, 0.0
    for _ in range(12):
        now += dice.choice([0.0, 0.5, 3.0])
        new = some_chunk(dice, number, now)
        number += len(new)
        by_chunks.add(new, now)
        for single in singles(new):
            by_records.add(single, now)
        met("several buckets", is_so=len(by_chunks.by_kind(new)) > 1)
        if dice.random() < 0.5:
            assert due(by_chunks, now) == due(by_records, now)
    assert due(by_chunks, inf) == due(by_records, inf)


def due(batcher: Batcher, now: float) -> dict[BatchKind, list[tuple[list[One], ClosedBy, float]]]:
    """All that is due, by kind, in order."""
    found: dict[BatchKind, list[tuple[list[One], ClosedBy, float]]] = {}
    while (group := batcher.due(now)) is not None:
        found.setdefault(group.kind, []).append((records_of(group), group.closed_by, group.due_at))
        met(f"closed by {group.closed_by.value}")
        met("a chunk is cut", is_so=any(part.at[0] > 0 or part.at[-1] < len(part) - 1 for part in group.chunks))
        met("a record is cut", is_so=any(part.reassembly is not None for part in group.chunks))
    return found

"""In any traffic the batcher loses, repeats and reorders nothing, and no batch exceeds its limits."""

from __future__ import annotations

import random

import numpy as np

from tests.builders import P0, P1, Q0, request
from tests.fakes import MODEL
from tests.meeting import meeting, met, with_each_seed
from worker.core.batching.batcher import Batcher, BatchPolicy, Group
from worker.core.records import Batch, BatchKind, ClosedBy, Partition, Request
from worker.core.tensors.buckets import NO_BUCKETS, Axis, Buckets, Shapes, Spot, tokens

FULL = (ClosedBy.SIZE, ClosedBy.BYTES, ClosedBy.TOKENS, ClosedBy.MEMORY)
SHAPES = [((1,), ()), ((2,), ()), ((3,), (5,)), ((7,), ()), ((8,), ())]
BUCKETS = Buckets((Axis("input a axis 1", (2, 4, 8), {Spot(0, 0): 0}),), element_bytes=(1, 1))


def expected(kind: BatchKind, rows: int) -> float:
    """An expected time that grows with the work; any such rule will do."""
    return 0.1 * tokens(kind.shapes) * rows


class Walk:
    """Adds requests, asks for groups in every way, and removes partitions. Dice choose each step."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.policy = BatchPolicy(
            dice.choice([1, 4, 10, 40]),
            dice.choice([30, 200, 1000, 10_000]),
            dice.choice([0.0, 1.0, 50.0]),
            dice.choice([None, None, 1, 8, 60]),
            dice.choice([NO_BUCKETS, BUCKETS]),
        )
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
        partition, rows, row_size = self.some_partition(), self.some_rows(), self.dice.choice([1, 9, 300])
        shapes, within = self.dice.choice(SHAPES), self.dice.choice([None, None, None, 0.0, 2.0, 30.0])
        for _ in range(2):
            self.add_one(partition, rows, row_size, shapes, within)

    def some_partition(self) -> Partition:
        return self.dice.choice([P0, P1, Q0])

    def some_rows(self) -> int:
        return self.dice.randint(1, 6)

    def add_one(self, partition: Partition, rows: int, row_size: int, shapes: Shapes, within: float | None) -> None:
        self.number += 1
        self.added_at[self.number] = self.now
        content = [bytes(rows * row_size) for _ in shapes]
        new = request(self.number, rows=rows, tensors=content, shapes=shapes, size=rows * row_size, partition=partition)
        new.deadline = None if within is None else self.now + within
        self.is_urgent |= within is not None
        self.batcher.add(new, self.now)
        self.waiting.setdefault(self.policy.buckets.padded(shapes), []).append((partition, self.number, rows))

    def ran_out_of_memory(self) -> None:
        self.batcher.ran_out_of_memory(self.some_batch())

    def ran(self) -> None:
        batch = self.some_batch()
        for _ in range(100):
            self.batcher.ran(batch, 0.1, self.now)

    def some_batch(self) -> Batch:
        rows, padded = self.some_rows(), self.policy.buckets.padded(self.dice.choice(SHAPES))
        feeds = {str(at): np.zeros((rows, *dims)) for at, dims in enumerate(padded)}
        return Batch([request(0)], feeds, rows, ClosedBy.SIZE)

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
        assert group.requests
        (shapes,) = {self.policy.buckets.padded(r.shapes) for r in group.requests}
        assert shapes == group.bucket.kind.shapes
        assert group.rows == sum(r.rows for r in group.requests) <= self.policy.max_rows
        assert group.size == sum(r.size for r in group.requests)
        assert group.size <= self.policy.max_bytes or group.rows == 1
        assert (
            self.policy.max_tokens is None or group.rows * tokens(shapes) <= self.policy.max_tokens or group.rows == 1
        )
        if self.policy.buckets.axes:
            assert group.rows * BUCKETS.row_bytes(shapes) <= self.policy.max_bytes or group.rows == 1
        assert group.closed_by in (*FULL, otherwise)
        assert group.opened_at <= min(self.added_at[r.record.offset] for r in group.requests)
        deadlines = [r.deadline for r in group.requests if r.deadline is not None]
        assert group.closed_by in FULL or not deadlines or group.due_at <= min(deadlines)
        met(f"closed by {group.closed_by.value}")
        met("shapes that differ share a batch", is_so=len({r.shapes for r in group.requests}) > 1)
        met("partitions share a batch", is_so=len({r.record.partition for r in group.requests}) > 1)
        met("a row alone is more than a batch", is_so=group.rows == 1 and group.size > self.policy.max_bytes)
        for leaving in group.requests:
            self.leave(leaving)

    def leave(self, leaving: Request) -> None:
        line = self.waiting[self.policy.buckets.padded(leaving.shapes)]
        at = [number for _, number, _ in line].index(leaving.record.offset)
        met("an urgent one overtakes", is_so=at > 0)
        assert at == 0 or self.is_urgent  # only an urgent request overtakes others of its bucket
        partition, number, rows = line.pop(at)
        assert partition == leaving.record.partition
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
)
def test_any_traffic_keeps_the_batchers_promises() -> None:
    """All requests leave in order, within the limits, in groups closed for a true reason."""
    with_each_seed(200, lambda dice: Walk(dice).go(40))

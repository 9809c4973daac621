"""The batcher through any traffic: it loses, repeats and reorders nothing, and no batch exceeds its limits."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.builders import P0, P1, Q0, request
from tests.fakes import MODEL
from tests.meeting import meeting, met
from worker.core.batching.batcher import Batcher, BatchPolicy, Group
from worker.core.records import Batch, BatchKind, ClosedBy, Partition, Request
from worker.core.tensors.buckets import NO_BUCKETS, Axis, Buckets, Shapes, Spot, tokens

FULL = (ClosedBy.SIZE, ClosedBy.BYTES, ClosedBy.TOKENS, ClosedBy.MEMORY)
SHAPES = [((1,), ()), ((2,), ()), ((3,), (5,)), ((7,), ()), ((8,), ())]
BUCKETS = Buckets((Axis("input a axis 1", (2, 4, 8), {Spot(0, 0): 0}),), element_bytes=(1, 1))


def expected(kind: BatchKind, rows: int) -> float:
    """Any rule that grows with the work."""
    return 0.1 * tokens(kind.shapes) * rows


class BatcherMachine(RuleBasedStateMachine):
    """Requests come, groups are asked for in every way, partitions leave."""

    # Limits that a request reaches, and limits that several share: with nothing but small ones no group stays open.
    @initialize(
        rows=st.integers(1, 6) | st.integers(10, 40),
        size=st.integers(1, 200) | st.integers(1000, 10_000),
        linger=st.sampled_from([0.0, 1.0, 50.0]),
        tokens=st.sampled_from([None, None, 1, 8, 60]),
        buckets=st.sampled_from([NO_BUCKETS, BUCKETS]),
        first=st.lists(st.tuples(st.sampled_from([P0, P1, Q0]), st.sampled_from(SHAPES)), max_size=6),
    )
    def configure(
        self,
        rows: int,
        size: int,
        linger: float,
        tokens: int | None,
        buckets: Buckets,
        first: list[tuple[Partition, Shapes]],
    ) -> None:
        self.policy = BatchPolicy(rows, size, linger, tokens, buckets)
        self.batcher = Batcher({MODEL: self.policy}, expected)
        self.now = 0.0
        self.waiting: dict[Shapes, list[tuple[Partition, int, int]]] = {}  # partition, number, rows that still wait
        self.added_at: dict[int, float] = {}
        self.number = 0
        self.is_urgent = False  # somebody was
        for partition, shapes in first:
            self.add_one(partition, 1, 4, shapes, None)

    @rule(
        partition=st.sampled_from([P0, P1, Q0]),
        rows=st.integers(1, 4) | st.integers(1, 20),
        row_size=st.integers(1, 9) | st.integers(1, 300),
        shapes=st.sampled_from(SHAPES),
        within=st.sampled_from([None, None, None, 0.0, 2.0, 30.0]),
        times=st.integers(1, 3),
    )
    def add(
        self, partition: Partition, rows: int, row_size: int, shapes: Shapes, within: float | None, times: int
    ) -> None:
        for _ in range(times):
            self.add_one(partition, rows, row_size, shapes, within)

    def add_one(self, partition: Partition, rows: int, row_size: int, shapes: Shapes, within: float | None) -> None:
        self.number += 1
        self.added_at[self.number] = self.now
        content = [bytes(rows * row_size) for _ in shapes]
        new = request(self.number, rows=rows, tensors=content, shapes=shapes, size=rows * row_size, partition=partition)
        new.deadline = None if within is None else self.now + within
        self.is_urgent |= within is not None
        self.batcher.add(new, self.now)
        self.waiting.setdefault(self.policy.buckets.padded(shapes), []).append((partition, self.number, rows))

    @rule(shapes=st.sampled_from(SHAPES), rows=st.integers(1, 6))
    def ran_out_of_memory(self, shapes: Shapes, rows: int) -> None:
        self.batcher.ran_out_of_memory(self.batch(shapes, rows))

    @rule(shapes=st.sampled_from(SHAPES), rows=st.integers(1, 6))
    def ran(self, shapes: Shapes, rows: int) -> None:
        for _ in range(100):
            self.batcher.ran(self.batch(shapes, rows), 0.1, self.now)

    def batch(self, shapes: Shapes, rows: int) -> Batch:
        padded = self.policy.buckets.padded(shapes)
        return Batch(
            [request(0)], {str(at): np.zeros((rows, *dims)) for at, dims in enumerate(padded)}, rows, ClosedBy.SIZE
        )

    @rule(seconds=st.sampled_from([0.5, 1.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(waited=st.sampled_from([0.0, 0.0, 0.5, 60.0]))
    def due(self, waited: float) -> None:
        self.now += waited
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
        if second is not None:  # what is ready goes in the order in which it is due
            assert second.due_at >= group.due_at
            self.check(second, ClosedBy.LINGER)

    @rule()
    def ahead(self) -> None:
        group = self.batcher.ahead(self.now)
        met("one is stacked ahead", is_so=group is not None)
        self.check(group, ClosedBy.LINGER)

    @rule()
    def pressed(self) -> None:
        group = self.batcher.pressed()

        assert (group is not None) == any(self.waiting.values())
        self.check(group, ClosedBy.PRESSURE)

    @rule()
    def drain(self) -> None:
        while any(self.waiting.values()):
            group = self.batcher.drain()
            assert group is not None
            self.check(group, ClosedBy.DRAIN)
        assert self.batcher.drain() is None
        assert self.batcher.next_due is None

    @rule(partitions=st.sets(st.sampled_from([P0, P1, Q0]), min_size=1))
    def forget(self, partitions: set[Partition]) -> None:
        self.batcher.forget(partitions)
        owners = {entry[0] for entries in self.waiting.values() for entry in entries}
        met("some leave and some stay", is_so=not owners.isdisjoint(partitions) and bool(owners - partitions))
        self.waiting = {
            shapes: [entry for entry in entries if entry[0] not in partitions]
            for shapes, entries in self.waiting.items()
        }

    def check(self, group: Group | None, otherwise: ClosedBy) -> None:
        """What leaves is the head of its shape's line, within the limits, and closed for a reason that holds."""
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
        assert at == 0 or self.is_urgent  # only who is urgent overtakes others of its bucket
        partition, number, rows = line.pop(at)
        assert partition == leaving.record.partition
        met("a request in pieces", is_so=rows > leaving.rows)
        if rows > leaving.rows:
            line.insert(at, (partition, number, rows - leaving.rows))
        else:
            assert rows == leaving.rows

    def teardown(self) -> None:
        if hasattr(self, "batcher"):
            self.drain()


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
    """What leaves is what came, in its order, within the limits, and closed for a reason that holds."""
    for seed in range(100):
        walk(random.Random(seed))


def walk(dice: random.Random) -> None:
    """The same machine, whose steps dice choose: its own examples leave some of them out."""
    machine = BatcherMachine()
    machine.configure(
        rows=dice.choice([1, 4, 10, 40]),
        size=dice.choice([30, 200, 1000, 10_000]),
        linger=dice.choice([0.0, 1.0, 50.0]),
        tokens=dice.choice([None, None, 1, 8, 60]),
        buckets=dice.choice([NO_BUCKETS, BUCKETS]),
        first=[],
    )
    for _ in range(40):
        shapes, rows = dice.choice(SHAPES), dice.randint(1, 6)
        within = dice.choice([None, None, None, 0.0, 2.0, 30.0])
        add = partial(machine.add, dice.choice([P0, P1, Q0]), rows, dice.choice([1, 9, 300]), shapes, within, 2)
        others: list[Callable[[], None]] = [
            machine.ahead,
            machine.pressed,
            partial(machine.due, dice.choice([0.0, 0.5, 60.0])),
        ]
        seldom: list[Callable[[], None]] = [
            machine.drain,
            partial(machine.forget, {P0}),
            partial(machine.ran_out_of_memory, shapes, rows),
        ]
        steps: list[Callable[[], None]] = [add, add, add, *others, *others, *seldom, partial(machine.ran, shapes, rows)]
        dice.choice(steps)()
    machine.teardown()


TestBatcherMachine = BatcherMachine.TestCase
TestBatcherMachine.settings = settings(max_examples=100, stateful_step_count=40)

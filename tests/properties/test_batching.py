"""The batcher through any traffic: it loses, repeats and reorders nothing, and no batch exceeds its limits."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.builders import P0, P1, Q0, request
from worker.core.batching import Batcher, BatchPolicy, Group
from worker.core.records import ClosedBy, Partition, Request

SHAPES = [((1,),), ((2,),), ((1, 3), ())]


class BatcherMachine(RuleBasedStateMachine):
    """Requests come, groups are asked for in every way, partitions leave."""

    @initialize(rows=st.integers(1, 6), size=st.integers(1, 200), linger=st.sampled_from([0.0, 1.0, 50.0]))
    def configure(self, rows: int, size: int, linger: float) -> None:
        self.policy = BatchPolicy(rows, size, linger)
        self.batcher = Batcher(self.policy)
        self.now = 0.0
        self.waiting: dict[object, list[tuple[Partition, int, int]]] = {}  # partition, number, rows that still wait
        self.added_at: dict[int, float] = {}
        self.number = 0

    @rule(
        partition=st.sampled_from([P0, P1, Q0]),
        rows=st.integers(1, 20),
        row_size=st.integers(1, 300),
        shapes=st.sampled_from(SHAPES),
    )
    def add(self, partition: Partition, rows: int, row_size: int, shapes: tuple[tuple[int, ...], ...]) -> None:
        self.number += 1
        self.added_at[self.number] = self.now
        content = [bytes(rows * row_size) for _ in shapes]
        new = request(self.number, rows=rows, tensors=content, shapes=shapes, size=rows * row_size, partition=partition)
        self.batcher.add(new, self.now)
        self.waiting.setdefault(shapes, []).append((partition, self.number, rows))

    @rule(seconds=st.sampled_from([0.5, 1.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def due(self) -> None:
        next_due = self.batcher.next_due
        group = self.batcher.due(self.now)

        assert (group is not None) == (next_due is not None and next_due <= self.now)
        self.check(group, ClosedBy.LINGER)
        if group is not None and group.closed_by is ClosedBy.LINGER:
            assert group.opened_at + self.policy.linger <= self.now

    @rule()
    def ahead(self) -> None:
        self.check(self.batcher.ahead(self.now), ClosedBy.LINGER)

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
        self.waiting = {
            shapes: [entry for entry in entries if entry[0] not in partitions]
            for shapes, entries in self.waiting.items()
        }

    def check(self, group: Group | None, otherwise: ClosedBy) -> None:
        """What leaves is the head of its shape's line, within the limits, and closed for a reason that holds."""
        if group is None:
            return
        assert group.requests
        assert len({r.shapes for r in group.requests}) == 1
        assert group.rows == sum(r.rows for r in group.requests) <= self.policy.max_rows
        assert group.size == sum(r.size for r in group.requests)
        assert group.size <= self.policy.max_bytes or group.rows == 1
        assert group.closed_by in (ClosedBy.SIZE, ClosedBy.BYTES, otherwise)
        assert group.opened_at <= min(self.added_at[r.record.offset] for r in group.requests)
        for leaving in group.requests:
            self.leave(leaving)

    def leave(self, leaving: Request) -> None:
        partition, number, rows = self.waiting[leaving.shapes].pop(0)
        assert (partition, number) == (leaving.record.partition, leaving.record.offset)
        if rows > leaving.rows:
            self.waiting[leaving.shapes].insert(0, (partition, number, rows - leaving.rows))
        else:
            assert rows == leaving.rows

    def teardown(self) -> None:
        if hasattr(self, "batcher"):
            self.drain()


TestBatcherMachine = BatcherMachine.TestCase
TestBatcherMachine.settings = settings(max_examples=100, stateful_step_count=40)

"""Batch sizes that fit into the device's memory, learned from runs."""

from __future__ import annotations

from tests.chunks import MODEL
from worker.core.batching import limits
from worker.core.batching.limits import FIRST_PATIENCE, Limit, MemoryLimits
from worker.core.records import BatchKind, ClosedBy, ModelKey

KIND, NARROWER = BatchKind(MODEL, ((128,),)), BatchKind(MODEL, ((64,),))
OTHERWISE = Limit(32, ClosedBy.SIZE)


def ran_full(memory: MemoryLimits, rows: int, times: int, closed_by: ClosedBy = ClosedBy.MEMORY) -> list[bool]:
    return [memory.ran(KIND, rows, closed_by) for _ in range(times)]


def test_a_batch_too_large_for_the_device_halves_the_limit_of_its_kind() -> None:
    """Other kinds keep their limit."""
    memory = MemoryLimits()
    assert not memory

    memory.ran_out(KIND, 32)

    assert memory
    assert memory.limit(KIND, OTHERWISE) == Limit(16, ClosedBy.MEMORY)
    assert memory.limit(NARROWER, OTHERWISE) == OTHERWISE
    assert memory.limit(KIND._replace(model=ModelKey("m", "2")), OTHERWISE) == OTHERWISE
    assert memory.limit(KIND, Limit(8, ClosedBy.TOKENS)) == Limit(8, ClosedBy.TOKENS)


def test_a_row_without_memory_alone_is_to_blame_itself() -> None:
    """The halvings before it say nothing about other rows, and nothing smaller could be tried."""
    memory = MemoryLimits()
    for rows in (32, 16, 8, 4, 2):
        memory.ran_out(KIND, rows)
    assert memory.limit(KIND, OTHERWISE).rows == 1

    memory.ran_out(KIND, 1)

    assert memory.limit(KIND, OTHERWISE) == OTHERWISE
    assert not memory


def test_a_limit_grows_after_many_full_batches() -> None:
    """Smaller batches show nothing."""
    memory = MemoryLimits()
    memory.ran_out(KIND, 32)

    assert not any(ran_full(memory, 15, FIRST_PATIENCE, ClosedBy.LINGER))
    assert not any(ran_full(memory, 8, FIRST_PATIENCE))  # half of a batch that was full
    assert ran_full(memory, 16, FIRST_PATIENCE) == [False] * (FIRST_PATIENCE - 1) + [True]
    assert memory.limit(KIND, OTHERWISE).rows == 18
    assert not memory.ran(NARROWER, 64, ClosedBy.MEMORY)


def test_a_batch_to_which_the_next_request_did_not_fit_is_full() -> None:
    """Requests of several rows seldom add up to exactly the limit."""
    memory = MemoryLimits()
    memory.ran_out(KIND, 32)

    assert ran_full(memory, 14, FIRST_PATIENCE)[-1]
    assert memory.limit(KIND, OTHERWISE).rows == 18


def test_a_limit_that_grew_too_far_is_tried_half_as_often() -> None:
    """So a device that is too small is seldom tried again."""
    memory = MemoryLimits()
    memory.ran_out(KIND, 32)
    ran_full(memory, 16, FIRST_PATIENCE)

    memory.ran_out(KIND, 18)

    assert memory.limit(KIND, OTHERWISE).rows == 9
    assert ran_full(memory, 9, 2 * FIRST_PATIENCE) == [False] * (2 * FIRST_PATIENCE - 1) + [True]


def test_a_batch_that_closed_before_the_lesson_teaches_nothing_new() -> None:
    """Two batches were running when memory ran out: one halving is enough."""
    memory = MemoryLimits()
    memory.ran_out(KIND, 32)

    memory.ran_out(KIND, 32)

    assert memory.limit(KIND, OTHERWISE).rows == 16


def test_only_so_many_kinds_are_remembered() -> None:
    """Publishers choose their shapes; the oldest entry is forgotten first."""
    memory = MemoryLimits()
    for length in range(limits.MOST_REMEMBERED + 1):
        memory.ran_out(BatchKind(MODEL, ((length,),)), 32)

    assert memory.limit(BatchKind(MODEL, ((0,),)), OTHERWISE) == OTHERWISE
    assert memory.limit(BatchKind(MODEL, ((1,),)), OTHERWISE).rows == 16

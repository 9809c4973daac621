"""The memory that worker and host share: what the system has of it again when batches are smaller."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.hosts import FACTS, Hosts
from worker.inference.facts import PageLocked
from worker.inference.host.lanes import GIVE_BACK_AFTER
from worker.inference.host.shared_memory import MOST_GIVEN_BACK, Heap

MIB = 1024 * 1024


@pytest.fixture
def heap() -> Iterator[Heap]:
    heap = Heap(256 * MIB)
    yield heap
    heap.close()


def taken(heap: Heap) -> int:
    """The MiB that the system has given."""
    return os.fstat(heap.memory.fd).st_blocks * 512 // MIB


def test_what_no_batch_needs_any_more_goes_back_and_what_one_holds_stays(heap: Heap) -> None:
    """The peak counts as needed until a whole time between two calls has passed without it."""
    held, *large = (heap.take(MIB) for _ in range(9))
    for piece in (held, *large):
        piece[:] = 7

    heap.give_back()
    del piece, large
    heap.give_back()
    after_the_peak = taken(heap)
    heap.give_back()

    assert (after_the_peak, taken(heap)) == (9, 1)
    assert (held == 7).all()
    assert not heap.take(8 * MIB).any()


def test_much_memory_goes_back_little_by_little(heap: Heap) -> None:
    """The loop waits meanwhile."""
    heap.take(3 * MOST_GIVEN_BACK)[:] = 7

    left: list[int] = []
    for _ in range(5):
        heap.give_back()
        left.append(taken(heap) * MIB)

    assert left == [times * MOST_GIVEN_BACK for times in (3, 2, 1, 0, 0)]


def test_lanes_keep_what_is_page_locked() -> None:
    """A GPU would go on reading the pages that were there, and the worker would write to others."""
    hosts = Hosts(facts=replace(FACTS, page_locked=PageLocked(4 * MIB)))
    hosts.heap.memory.bytes[: 8 * MIB] = hosts.heap.take(8 * MIB)[0]

    for _ in range(3):
        hosts.later += GIVE_BACK_AFTER
        hosts.lanes.finished(0.0)

    assert taken(hosts.heap) == 4
    hosts.close()


def test_lanes_give_back_what_large_batches_took_but_not_when_runs_began() -> None:
    """That is on the first page."""
    hosts = Hosts()
    hosts.heap.memory.begun()[3] = 5
    hosts.heap.take(8 * MIB)[:] = 7

    for _ in range(3):
        hosts.later += GIVE_BACK_AFTER
        hosts.lanes.finished(0.0)

    assert taken(hosts.heap) == 0
    assert hosts.heap.memory.begun()[3] == 5
    hosts.close()

"""How many inferences run at once, where nothing else is set. Pure."""

from __future__ import annotations

from typing import NamedTuple

from worker.settings.sections import BatchingSettings

# Lanes that keep a GPU busy: a second one gave 1.12 to 1.29 times as much, a third hardly more (docs/benchmarks.md).
OVERLAPPING = 2


class Concurrency(NamedTuple):
    """Inference threads, and the batches that run or are stacked ahead."""

    lanes: int
    batches: int


def concurrency(batching: BatchingSettings, *, overlaps: bool) -> Concurrency:
    """For a model one of whose runs overlaps another, or not."""
    lanes = batching.lanes or (OVERLAPPING if overlaps and _has_room(batching, OVERLAPPING) else 1)
    return Concurrency(lanes, batching.max_inflight_batches or lanes + 1)


def _has_room(batching: BatchingSettings, lanes: int) -> bool:
    """For all that may run, one stacked ahead, and one that fills."""
    batches = (batching.max_inflight_batches or lanes + 1) + 1
    rows, size = batching.max_batch_size * batches, batching.max_batch_bytes * batches
    return batches >= lanes + 2 and rows <= batching.max_inflight_rows and size <= batching.max_inflight_bytes

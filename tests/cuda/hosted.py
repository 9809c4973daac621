"""A host with a model on CUDA, real or the stand-in, and batches that lie one after the other in its memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from tests import models
from tests.chunks import chunk
from tests.logs import capture_logs
from tests.unit.test_settings import LEAST
from worker import telemetry
from worker.assembled_model import Engine, begin_model
from worker.core.chunk import Batch, Finished
from worker.core.records import ClosedBy
from worker.settings import load

PATIENCE = 30.0  # longer than any machine needs
MIB = 1 << 20
WIDE = models.identity("INT64", ("width",))


@contextmanager
def hosted(folder: Path, **given: str) -> Iterator[Engine]:
    """A host with `WIDE` on CUDA, under these settings of a worker."""
    variables = {f"WORKER_{name}": value for name, value in given.items()}
    path = models.save(WIDE, folder)
    settings = load(None, {**LEAST, "WORKER_MODEL__PATH": str(path), "WORKER_MODEL__DEVICE": "cuda", **variables})
    with ExitStack() as closing:
        yield begin_model(settings, telemetry.WorkerEvents(1), closing)()


def batches(engine: Engine, count: int, numbers: int) -> Sequence[Batch]:
    """So many batches of one row of that many numbers, no two alike, one after the other in the shared memory."""
    made: list[Batch] = []
    for number in range(count):
        feed = engine.rooms(numbers * 8).empty((1, numbers), np.dtype(np.int64))
        feed[...] = np.arange(number, number + numbers)
        made.append(Batch([chunk()], {"x": feed}, 1, ClosedBy.SIZE))
    return made


def ran(engine: Engine, waiting: Sequence[Batch]) -> list[Finished]:
    for batch in waiting:
        engine.lanes.submit(batch)
    done: list[Finished] = []
    give_up = time.monotonic() + PATIENCE
    while len(done) < len(waiting):
        assert time.monotonic() < give_up, f"{len(done)} of {len(waiting)} are returned"
        done += engine.lanes.finished(0.1)
    return done


def assert_right(done: Sequence[Finished]) -> None:
    assert {item.failure for item in done} == {None}
    assert all(item.outputs and item.batch and np.array_equal(item.outputs[0], item.batch.feeds["x"]) for item in done)


def assert_answered_across_the_end(folder: Path) -> None:
    """Fail the test unless batches below the end of the page-locked memory, across it and above it are answered."""
    small = {"BATCHING__MAX_INFLIGHT_BYTES": str(MIB + 5), "BATCHING__MAX_BATCH_BYTES": str(MIB // 4)}
    with capture_logs() as log, hosted(folder, **small) as engine:
        waiting = batches(engine, 12, numbers=20_000)
        ends = [batch.feeds["x"].ctypes.data + batch.feeds["x"].nbytes for batch in waiting]

        done = ran(engine, waiting)

        assert_right(done)
    assert [line["size"] for line in log if line["event"] == "memory_page_locked"] == [MIB]
    assert ends[-1] - ends[0] > MIB

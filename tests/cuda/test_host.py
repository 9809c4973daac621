"""A host on CUDA: its memory is page-locked, and answers are right whatever part of a batch that is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests import models
from tests.chunks import chunk
from tests.cuda.cuda import OUT_OF_MEMORY, Cuda, on_cuda
from tests.logs import capture_logs
from tests.unit.test_settings import LEAST
from worker import telemetry
from worker.assembled_model import Engine, begin_model
from worker.core.chunk import Batch, Finished
from worker.core.failures import RunFailure
from worker.core.records import ClosedBy
from worker.inference.host.page_locking import page_locked
from worker.inference.host.shared_memory import Heap
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


def test_batches_are_answered_whatever_part_of_them_is_page_locked(tmp_path: Path) -> None:
    """CUDA refuses to copy from memory of which a part is page-locked, so the host copies that first."""
    small = {"BATCHING__MAX_INFLIGHT_BYTES": str(MIB + 5), "BATCHING__MAX_BATCH_BYTES": str(MIB // 4)}
    with capture_logs() as log, hosted(tmp_path, **small) as engine:
        waiting = batches(engine, 12, numbers=20_000)
        ends = [batch.feeds["x"].ctypes.data + batch.feeds["x"].nbytes for batch in waiting]

        done = ran(engine, waiting)

        assert_right(done)
    assert [line["size"] for line in log if line["event"] == "memory_page_locked"] == [MIB]
    assert ends[-1] - ends[0] > MIB


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_a_row_that_fits_is_answered_however_many_lanes_want_the_memory(lanes: int, tmp_path: Path) -> None:
    """Two rows at once do not fit: 2 MiB go in, and as much comes out."""
    limits = {
        "MODEL__GPU_MEM_LIMIT": str(5 * MIB),
        "BATCHING__MAX_BATCH_SIZE": "1",
        "BATCHING__MAX_BATCH_BYTES": str(MIB),
    }
    with hosted(tmp_path, **limits, BATCHING__LANES=str(lanes)) as engine:
        done = ran(engine, batches(engine, 30, numbers=MIB // 4))

        assert_right(done)


def test_memory_is_page_locked_for_the_model_s_device(cuda: Cuda, tmp_path: Path) -> None:
    """Each thread begins on device 0, where locking would make a context that takes memory."""
    on_cuda(tmp_path, WIDE, device="cuda:1")
    heap = Heap(4 * MIB)

    locked = page_locked(heap.memory, 2 * MIB)

    assert locked == (2 * MIB, None)
    assert (cuda.registered(0), cuda.registered(1)) == (0, 2 * MIB)
    cuda.unlock(heap.memory.bytes)
    heap.close()


def test_locking_that_is_refused_is_no_failure(cuda: Cuda, tmp_path: Path) -> None:
    """The worker says why. CUDA would report it once more, as the next run's failure."""
    model = on_cuda(tmp_path, WIDE)
    heap = Heap(4 * MIB)

    with cuda.failing("cudaHostRegister", OUT_OF_MEMORY):
        locked = page_locked(heap.memory, 2 * MIB)

    assert locked == (0, "CUDA failure 2: out of memory")
    assert cuda.library.cudaGetLastError() == 0
    assert not isinstance(model.run({"x": np.ones((1, 4), np.int64)}), RunFailure)
    heap.close()

"""A host on CUDA: its memory is page-locked, and answers are right whatever part of a batch that is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cuda.cuda import OUT_OF_MEMORY, Cuda, on_cuda
from tests.cuda.hosted import MIB, WIDE, assert_answered_across_the_end, assert_right, batches, hosted, ran
from worker.core.failures import RunFailure
from worker.inference.host.page_locking import page_locked
from worker.inference.host.shared_memory import Heap


def test_batches_are_answered_whatever_part_of_them_is_page_locked(tmp_path: Path) -> None:
    """CUDA refuses to copy from memory of which a part is page-locked, so the host copies that first."""
    assert_answered_across_the_end(tmp_path)


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

    assert locked == (2 * MIB, "CUDA failure 2: out of memory")
    assert cuda.library.cudaGetLastError() == 0
    assert not isinstance(model.run({"x": np.ones((1, 4), np.int64)}), RunFailure)
    heap.close()

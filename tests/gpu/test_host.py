"""A host's memory is page-locked on CUDA, and answers are right whatever part of a batch that is."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from tests import models
from tests.cuda.hosted import MIB, WIDE, assert_answered_across_the_end
from worker.core.failures import RunFailure
from worker.inference.host.page_locking import _runtime, page_locked
from worker.inference.host.shared_memory import Heap
from worker.inference.model_loading import load
from worker.settings import ModelSettings


def test_batches_are_answered_whatever_part_of_them_is_page_locked(tmp_path: Path) -> None:
    """The host copies a batch across the end first."""
    assert_answered_across_the_end(tmp_path)


def test_cuda_copies_from_no_memory_of_which_a_part_is_page_locked(tmp_path: Path) -> None:
    """That is why. The refused copy leaves the device as it was."""
    model = load(ModelSettings(path=models.save(WIDE, tmp_path), device="cuda"), max_batch_size=1)
    heap = Heap(4 * MIB)
    numbers = heap.memory.bytes.view(np.int64)
    numbers[:] = np.arange(len(numbers))
    end = len(numbers) // 2

    locked = page_locked(heap.memory, 2 * MIB)
    outcomes = [model.run({"x": numbers[at : at + 100_000].reshape(1, -1)}) for at in (0, end - 50_000, end, 0)]
    assert not _runtime().cudaHostUnregister(ctypes.c_void_p(heap.memory.bytes.ctypes.data))

    assert locked == (2 * MIB, None)
    assert [isinstance(outcome, RunFailure) for outcome in outcomes] == [False, True, False, False]
    heap.close()

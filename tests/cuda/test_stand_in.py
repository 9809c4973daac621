"""That these tests can fail: the stand-in shows what is read too early, and runs no kernel."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from tests import models
from tests.cuda.cuda import Cuda, on_cuda
from worker.core.failures import BadConfiguration
from worker.inference import load
from worker.settings import ModelSettings

Bytes = NDArray[np.uint8]


def page_locked(cuda: Cuda, size: int) -> Bytes:
    """So many bytes that no copy reads or writes before it is waited for."""
    address = ctypes.c_void_p()
    cuda.library.cudaHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), 0)
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address.value or 0))


def test_a_run_that_waits_for_nothing_gives_rubbish(cuda: Cuda, tmp_path: Path) -> None:
    """So the right numbers elsewhere are there because a call waited."""
    session = on_cuda(tmp_path, models.identity("INT64"))._session
    binding = session.io_binding()
    host = page_locked(cuda, 32).view(np.int64).reshape(1, 4)
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(np.full((1, 4), 7), "cuda", 0))
    binding.bind_output("y", "cpu", 0, host.dtype, host.shape, host.ctypes.data)

    session.run_with_iobinding(binding, options)
    without = host.copy()
    session.run_with_iobinding(binding)

    assert (without != 7).all()
    assert (host == 7).all()


def test_a_model_with_a_kernel_cannot_run_here(tmp_path: Path) -> None:
    """Its outputs would be what their memory held before; so the models of these tests only move their inputs."""
    settings = ModelSettings(path=models.save(models.mlp(), tmp_path), device="cuda")

    with pytest.raises(BadConfiguration, match="801"):
        load(settings, max_batch_size=2)

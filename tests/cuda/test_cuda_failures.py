"""Failures on CUDA, in the words of ONNX Runtime's own provider, and their effect on this batch and the next one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from tests import models
from tests.cuda.cuda import DRIVER_TOO_OLD, ILLEGAL_ADDRESS, OUT_OF_MEMORY, Cuda, on_cuda
from worker.core.failures import BadConfiguration, Code, ModelBroken, RunFailure
from worker.core.records import Array
from worker.inference.model import Model

WIDE = models.identity("INT64", (1024,))
TWO = models.identities({"A": "INT64", "B": "INT64"})


def rows(count: int) -> dict[str, Array]:
    """Rows for `WIDE`, 8 KiB each."""
    return {"x": np.arange(count * 1024).reshape(count, 1024)}


def failure(model: Model, feeds: dict[str, Array]) -> RunFailure:
    outcome = model.run(feeds)
    assert isinstance(outcome, RunFailure)
    return outcome


def assert_runs(model: Model, feeds: dict[str, Array]) -> None:
    outputs = model.run(feeds)
    assert not isinstance(outputs, RunFailure), outputs
    for output, feed in zip(outputs, feeds.values(), strict=True):
        assert np.array_equal(output, feed)


def test_a_device_without_memory_fails_the_batch_and_no_other(cuda: Cuda, tmp_path: Path) -> None:
    """The loop tries the batch's halves; the failed run leaves nothing behind."""
    model = on_cuda(tmp_path, WIDE)
    assert_runs(model, rows(8))

    with cuda.failing("cudaMalloc", OUT_OF_MEMORY):
        starved = failure(model, rows(512))
        assert_runs(model, rows(8))

    assert starved.code is Code.RESOURCE_EXHAUSTED
    assert starved.message.startswith("the device has not enough memory: ")
    assert_runs(model, rows(512))


def test_the_arena_at_its_limit_fails_the_batch_and_no_other(tmp_path: Path) -> None:
    """ONNX Runtime itself enforces GPU_MEM_LIMIT, with an error text of its own."""
    model = on_cuda(tmp_path, WIDE, gpu_mem_limit=4 << 20)

    starved = failure(model, rows(1024))

    assert starved.code is Code.RESOURCE_EXHAUSTED
    assert "smaller than requested" in starved.message
    assert_runs(model, rows(128))


def test_a_warm_up_that_does_not_fit_names_the_setting(tmp_path: Path) -> None:
    """It fails before the worker is ready, not batch by batch."""
    with pytest.raises(
        BadConfiguration, match=r"not enough memory for \d+ rows: lower WORKER_BATCHING__MAX_BATCH_SIZE"
    ):
        on_cuda(tmp_path, WIDE, rows=1024, gpu_mem_limit=4 << 20)


@pytest.mark.parametrize("memory", ["ordinary", "page-locked"])
@pytest.mark.parametrize("after", range(4))
def test_a_run_that_fails_half_way_spoils_no_later_one(after: int, memory: str, cuda: Cuda, tmp_path: Path) -> None:
    """Its earlier operations are still in its stream: two copies on the device, two back.

    They may read page-locked memory that other feeds have taken since.
    """
    model = on_cuda(tmp_path, TWO)
    feeds = {"xA": np.full((2, 2), 1), "xB": np.full((2, 2), 2)}

    with cuda.page_locking(feeds.values() if memory == "page-locked" else ()):
        with cuda.failing("cudaMemcpyAsync", OUT_OF_MEMORY, after):
            failed = failure(model, feeds)
        for feed in feeds.values():
            np.add(feed, 10, out=feed)
        assert_runs(model, feeds)

    assert failed.code is Code.RESOURCE_EXHAUSTED
    assert_runs(model, {"xA": np.full((2, 2), 3), "xB": np.full((2, 2), 4)})
    assert_runs(model, {"xA": np.full((50, 2), 5), "xB": np.full((50, 2), 6)})


@pytest.mark.parametrize("function", ["cudaMemcpyAsync", "cudaStreamSynchronize"])
def test_a_dead_context_ends_the_worker(function: str, cuda: Cuda, tmp_path: Path) -> None:
    """The context may die in a run, or in a wait."""
    model = on_cuda(tmp_path, WIDE)

    with (
        cuda.failing(function, ILLEGAL_ADDRESS),
        pytest.raises(ModelBroken, match="CUDA failure 700: an illegal memory"),
    ):
        model.run(rows(1))


def test_a_failing_run_writes_nothing_to_standard_error(
    cuda: Cuda, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By default ONNX Runtime writes there, too: lines that are not in our log's form, with the host's name."""
    model = on_cuda(tmp_path, WIDE)

    with cuda.failing("cudaMemcpyAsync", OUT_OF_MEMORY):
        failure(model, rows(1))
        silence = capfd.readouterr().err
        ort.set_default_logger_severity(2)
        failure(model, rows(1))
        ort.set_default_logger_severity(4)

    assert silence == ""
    assert "CUDA failure 2" in capfd.readouterr().err


def test_a_driver_too_old_is_named(cuda: Cuda, tmp_path: Path) -> None:
    """CUDA's first function that needs a driver reports it, in its words; the error adds a cure."""
    with (
        cuda.failing("cudaGetDeviceCount", DRIVER_TOO_OLD),
        pytest.raises(
            BadConfiguration, match=r"CUDA driver version is insufficient for CUDA runtime version\. Install"
        ),
    ):
        on_cuda(tmp_path, WIDE)

"""Runs on ONNX Runtime's own CUDA provider: the input comes out whatever else runs, and no later run changes it."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests import models
from tests.cuda.cuda import Cuda, on_cuda
from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.inference.host.child import Host
from worker.inference.host.shared_memory import Heap
from worker.inference.model import Model

# A GPU may serve its streams in either order, and in any between.
pytestmark = [
    pytest.mark.usefixtures("cuda"),
    pytest.mark.parametrize("cuda", ["late", "others first"], indirect=True),
]

# Calls by which ONNX Runtime sets up each concurrent run.
SET_UP = (
    "cublasCreate_v2",
    "cublasLtCreate",
    "cudnnCreate",
    "cudaStreamCreateWithFlags",
    "cudaMalloc",
)


def arrays(result: Sequence[Array] | RunFailure) -> Sequence[Array]:
    assert not isinstance(result, RunFailure), result
    return result


def assert_same(model: Model, feeds: Mapping[str, Array]) -> None:
    """Fail the test unless each output equals its input."""
    for given, got in zip(feeds.values(), arrays(model.run(feeds)), strict=True):
        assert got.dtype == given.dtype
        assert np.array_equal(got, given)


def numbers(rows: int, seed: int, width: int = 4) -> Array:
    return np.random.default_rng(seed).integers(0, 1 << 60, (rows, width))


def feeds_of(number: int) -> dict[str, Array]:
    """1 to 40 rows, more than the warm-up had; no two are alike."""
    return {"x": numbers(1 + number * 7 % 40, number)}


def test_every_datatype_but_strings_comes_back_as_it_went_in(tmp_path: Path) -> None:
    """On the device each is a sequence of bytes in memory of its own."""
    datatypes = {datatype: datatype for datatype in models.ONNX_TYPES if datatype not in ("BF16", "BYTES")}
    model = on_cuda(tmp_path, models.identities(datatypes))

    assert_same(
        model,
        {spec.name: np.array([[0, 1], [2, 3], [250, 127]]).astype(spec.dtype) for spec in model.signature.inputs},
    )


def test_batches_grow_and_shrink(tmp_path: Path) -> None:
    """Memory is reused or made anew; no answer has rows that the last batch left in it."""
    model = on_cuda(tmp_path, models.identities({"A": "FP32", "B": "INT64"}))

    for seed, rows in enumerate((1, 5, 3, 3, 64, 2, 100, 0, 1, 100)):
        assert_same(model, {"xA": numbers(rows, seed, width=2).astype(np.float32), "xB": numbers(rows, seed, width=2)})


@pytest.mark.parametrize("width", [4, "width"], ids=["known shape", "shape of the run's own"])
def test_no_later_run_writes_to_what_an_earlier_one_gave(width: int | str, tmp_path: Path) -> None:
    """The loop encodes answers while the lane runs the next batch, perhaps with as many rows."""
    model = on_cuda(tmp_path, models.identity("INT64", (width,)))
    feeds = [numbers(rows, seed) for seed, rows in enumerate((3, 3, 9, 3))]

    outputs = [arrays(model.run({"x": feed}))[0] for feed in feeds]

    for output, feed in zip(outputs, feeds, strict=True):
        assert np.array_equal(output, feed)


def test_two_lanes_answer_each_batch_with_its_own(tmp_path: Path) -> None:
    """With LANES=2 each run has a stream of its own."""
    model = on_cuda(tmp_path, models.identity("INT64"))

    with ThreadPoolExecutor(2) as lanes:
        list(lanes.map(assert_same, [model] * 120, map(feeds_of, range(120))))


def test_the_first_batch_of_a_lane_finds_everything_set_up(cuda: Cuda, tmp_path: Path) -> None:
    """Concurrent probes of all lanes make streams, libraries' handles and memory before the worker is ready.

    ONNX Runtime makes most of it for each concurrent run: here a probe takes as long as on a GPU.
    """
    model = on_cuda(tmp_path, models.identity("INT64"), rows=40)
    loaded = {function: cuda.calls(function) for function in SET_UP}

    with socket.socket() as channel, closing(Heap(1 << 20)) as heap, ThreadPoolExecutor(2) as lanes:
        host = Host(channel, heap.memory, model, 2)
        with cuda.slow(0.2):
            list(lanes.map(host._probe, [1, 1]))
        ready = {function: cuda.calls(function) for function in SET_UP}
        list(lanes.map(assert_same, [model] * 20, map(feeds_of, range(20))))

    assert ready["cudaStreamCreateWithFlags"] > loaded["cudaStreamCreateWithFlags"]
    assert {function: cuda.calls(function) for function in SET_UP} == ready


def test_the_second_device_is_used_and_the_first_left_alone(cuda: Cuda, tmp_path: Path) -> None:
    """Each thread begins on device 0, and would use it until it chooses another."""
    on_first = cuda.on_device(0)
    model = on_cuda(tmp_path, models.identity("INT64", (4096,)), device="cuda:1")

    with ThreadPoolExecutor(1) as lane:
        # 16 MiB in the end: more than other tests leave in ONNX Runtime's arena on the first device.
        for rows in (3, 512):
            lane.submit(assert_same, model, {"x": numbers(rows, seed=0, width=4096)}).result()
            assert cuda.on_device(0) == on_first
        on_second = cuda.on_device(1)

    assert model.device.name == "cuda:1"
    assert on_second > 0

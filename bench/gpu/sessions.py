"""ONNX Runtime alone, opened as one does it by hand; the worker's own model beside it; and how long a run takes."""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from bench.gpu.device import CudaClock
from bench.gpu.networks import Feeds
from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.inference import Model, load
from worker.settings import ModelSettings

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
UNWAITED = "disable_synchronize_execution_providers"  # a run returns when its kernels are given, not when they are done
AHEAD = 8  # runs that the device is given before it is waited for


def opened(model: Path, device: str, **options: str) -> onnxruntime.InferenceSession:
    """On `cuda` or `cpu`, with these options of CUDA's provider. Fails where that is not there."""
    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = 1
    if device == "cpu":
        return onnxruntime.InferenceSession(str(model), session, providers=[CPU])
    with contextlib.redirect_stdout(io.StringIO()):
        onnxruntime.preload_dlls()  # CUDA from pip's packages, which lie where the loader does not look
    providers = [(CUDA, options), CPU]
    made = onnxruntime.InferenceSession(str(model), session, providers=providers, enable_fallback=0)
    assert CUDA in made.get_providers(), "ONNX Runtime took the CPU in place of CUDA"
    return made


def loaded(model: Path, device: str, rows: int, **settings: Any) -> Model:
    """As the worker loads it, but each batch runs with the rows that it has.

    Warmed up with one row and two alone, unless the settings say otherwise.
    """
    chosen = {"warm_up_rows": (1, 2), "full_batches": "never", **settings}
    return load(ModelSettings(path=model, device=device, **chosen), max_batch_size=rows)


def answered(model: Model, feeds: Feeds) -> list[Array]:
    """What a run of the worker's model gives. Fails where it failed."""
    found = model.run(feeds)
    assert not isinstance(found, RunFailure), found.message
    return list(found)


def milliseconds(run: Callable[[], object], seconds: float) -> float:
    """The median of its runs in so many seconds, three at least. The first one does not count."""
    run()
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return statistics.median(found) * 1000


class OnDevice:
    """A session whose inputs and outputs stay on the device, on a stream that is ours: what is left are its kernels."""

    def __init__(self, model: Path) -> None:
        opened(
            model, "cuda"
        )  # loads the CUDA runtime, which the clock needs; the stream must be there before a session
        self._clock = CudaClock()
        self._session = opened(model, "cuda", user_compute_stream=str(self._clock.stream.value))

    def milliseconds(self, feeds: Feeds, seconds: float) -> float:
        """Of a run, by CUDA's events around several that follow one another: the median of those groups."""
        binding = bound_near(self._session, feeds)
        options = onnxruntime.RunOptions()
        options.add_run_config_entry(UNWAITED, "1")
        self._session.run_with_iobinding(binding)
        found: list[float] = []
        until = time.perf_counter() + seconds
        while len(found) < 3 or time.perf_counter() < until:
            first = self._clock.event()
            for _ in range(AHEAD):
                self._session.run_with_iobinding(binding, options)
            found.append(self._clock.milliseconds(first, self._clock.event()) / AHEAD)
        return statistics.median(found)


def bound_near(session: onnxruntime.InferenceSession, feeds: Feeds) -> onnxruntime.IOBinding:
    """Inputs that lie on the device already, outputs that stay there."""
    binding = session.io_binding()
    for name, array in feeds.items():
        there = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), "cuda", 0)
        binding.bind_ortvalue_input(name, there)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda", 0)
    return binding


def mean_rate(run: Callable[[], int], seconds: float) -> tuple[float, int]:
    """Rows a second, and how many there were, where each run says how many it had."""
    rows, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds or not rows:
        rows += run()
    return rows / took, rows

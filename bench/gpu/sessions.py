"""Opens ONNX Runtime as one does it by hand, loads the worker's own model, and measures the time of an inference."""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime

from bench.gpu.networks import Feeds
from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.inference.model import Model
from worker.inference.model_loading import load
from worker.settings import ModelSettings

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def opened(model: Path, device: str, **options: str) -> onnxruntime.InferenceSession:
    """Opens a session on `cuda` or `cpu`, with these options of CUDA's provider. Fails if there is no CUDA."""
    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = 1
    if device == "cpu":
        return onnxruntime.InferenceSession(str(model), session, providers=[CPU])
    with contextlib.redirect_stdout(io.StringIO()):
        onnxruntime.preload_dlls()  # loads CUDA from pip's packages, where the system's loader does not look
    providers = [(CUDA, options), CPU]
    made = onnxruntime.InferenceSession(str(model), session, providers=providers, enable_fallback=0)
    assert CUDA in made.get_providers(), "ONNX Runtime took the CPU in place of CUDA"
    return made


def loaded(model: Path, device: str, rows: int, **settings: Any) -> Model:
    """Loads a model as the worker does, but each batch runs with its own number of rows.

    It is warmed up with one row and with two only, unless the settings say otherwise.
    """
    chosen = {"warm_up_rows": (1, 2), "full_batches": "never", **settings}
    return load(ModelSettings(path=model, device=device, **chosen), max_batch_size=rows)


def answered(model: Model, feeds: Feeds) -> list[Array]:
    """Runs the worker's model, and returns its outputs. Fails if the inference failed."""
    found = model.run(feeds)
    assert not isinstance(found, RunFailure), found.message
    return list(found)


def milliseconds(run: Callable[[], object], seconds: float) -> float:
    """Measures the median of the runs in so many seconds, three at least. The first run does not count."""
    run()
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return statistics.median(found) * 1000


def mean_rate(run: Callable[[], int], seconds: float) -> tuple[float, int]:
    """Measures rows a second, and returns also how many there were. Each run returns its number of rows."""
    rows, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds or not rows:
        rows += run()
    return rows / took, rows

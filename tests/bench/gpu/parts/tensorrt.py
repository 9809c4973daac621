"""TensorRT beside CUDA: seconds until the worker's model is ready, engine cache cold and warm, and a run after that."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from tests.bench.gpu.networks import FP16, Network
from tests.bench.gpu.results import Line
from tests.bench.gpu.sessions import answered, loaded, milliseconds
from tests.bench.gpu.stage import NETWORK, Case, Column, Part, Stage, of
from worker.core.failures import BadConfiguration

TENSORRT = "TensorrtExecutionProvider"
HOW = """As `WORKER_MODEL__PROVIDERS` has it, warmed up with every power of two up to the batch, as before a start.
Ready: seconds from the file to the warm model. The libraries of TensorRT are loaded before by a small model."""
COLUMNS = (
    *NETWORK,
    Column("provider", "provider"),
    Column("ready_s", "ready, s", ",.1f"),
    Column("ms", "a batch, ms"),
)


def cases(stage: Stage) -> Iterator[Case]:
    """Each network by both; ragged texts would have an engine for each shape."""
    if why := _why_absent(stage):
        yield Case({"network": "all", "provider": TENSORRT}, partial(_absent, why))
    for network in stage.networks:
        if not network.is_ragged:
            yield Case(of(network), partial(_network, stage, network, has_tensorrt=not why))


def _absent(why: str) -> Iterator[Line]:
    raise AssertionError(why)


def _why_absent(stage: Stage) -> str:
    """Why TensorRT cannot be used here."""
    if not stage.is_gpu:
        return "TensorRT needs a GPU"
    try:
        loaded(stage.model(stage.networks[-1]), "auto", 2, providers=(TENSORRT, "CUDAExecutionProvider"))
    except BadConfiguration as refusal:
        return str(refusal)
    return ""


def _network(stage: Stage, network: Network, *, has_tensorrt: bool) -> Iterator[Line]:
    yield _ready(stage, network, "CUDA" if stage.is_gpu else "CPU", device=stage.device)
    if has_tensorrt:
        cache = stage.folder / f"engines of {network.title}"
        options = {
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(cache),
            "trt_fp16_enable": str(int(network.precision == FP16)),
        }
        chosen: Mapping[str, Any] = {
            "device": "auto",
            "providers": (TENSORRT, "CUDAExecutionProvider"),
            "provider_options": {f"{TENSORRT}.{name}": value for name, value in options.items()},
        }
        yield _ready(stage, network, "TensorRT, cold", **chosen)
        yield _ready(stage, network, "TensorRT, warm", **chosen)


def _ready(stage: Stage, network: Network, provider: str, *, device: str, **settings: Any) -> Line:
    path, began = stage.model(network), time.perf_counter()
    model = loaded(path, device, network.batch, warm_up_rows=(), **settings)
    ready_s = time.perf_counter() - began
    run = partial(answered, model, network.feeds(network.batch))
    return {"provider": provider, "ready_s": ready_s, "ms": milliseconds(run, stage.seconds / 4)}


PART = Part("tensorrt", "On a GPU: TensorRT", HOW, COLUMNS, cases, limit=240)

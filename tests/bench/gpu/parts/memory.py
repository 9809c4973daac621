"""The device's memory: what a model holds by the arena's strategy, and what a batch costs that does not fit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.bench.gpu.networks import Network
from tests.bench.gpu.nvml import MIB, Device
from tests.bench.gpu.results import Line
from tests.bench.gpu.sessions import answered, loaded, milliseconds
from tests.bench.gpu.stage import NETWORK, Case, Column, Part, Stage, of
from tests.models import hungry, save
from worker.core.failures import Code, RunFailure

STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")
ROW = 32 << 20  # what one row of `hungry` takes
FITS, LIMIT = 16, 20  # rows
NO_GPU = "a device's memory needs a GPU"
HOW = """What the whole device holds more, in MiB, once a model is warm up to its batch and has run three of them, by
the provider's `arena_extend_strategy`. The last: a batch of three times what `WORKER_MODEL__GPU_MEM_LIMIT` has."""
COLUMNS = (
    *NETWORK,
    Column("what", "what"),
    Column("used_mib", "MiB more", ",.0f"),
    Column("ms", "ms"),
)


def cases(stage: Stage) -> Iterator[Case]:
    """Each network by each strategy, then the batch that does not fit."""
    for network in stage.networks:
        for strategy in STRATEGIES:
            yield Case(of(network, what=strategy), partial(_held, stage, network, strategy))
    yield Case({"network": "32 MiB a row"}, partial(_starved, stage))


def _held(stage: Stage, network: Network, strategy: str) -> Iterator[Line]:
    assert stage.is_gpu, NO_GPU
    device = Device()
    answered(loaded(stage.model(network), stage.device, 2), network.feeds(1))  # CUDA itself and its libraries
    before = device.sample().used
    options = {"CUDAExecutionProvider.arena_extend_strategy": strategy}
    settings = {"provider_options": options, "warm_up_rows": ()}
    model = loaded(stage.model(network), stage.device, network.batch, **settings)
    ms = milliseconds(partial(answered, model, network.feeds(network.batch)), 0.0)
    yield {"used_mib": (device.sample().used - before) / MIB, "ms": ms}


def _starved(stage: Stage) -> Iterator[Line]:
    assert stage.is_gpu, NO_GPU
    path = save(hungry(4, ROW // 4), stage.folder, "hungry")
    model = loaded(path, stage.device, FITS, gpu_mem_limit=LIMIT * ROW)
    small, large = ({"x": np.ones((rows, 4), np.float32)} for rows in (FITS // 4, 3 * LIMIT))
    yield {"what": "fits", "ms": milliseconds(partial(answered, model, small), stage.seconds / 4)}
    began = time.perf_counter()
    found = model.run(large)
    took = (time.perf_counter() - began) * 1000
    assert isinstance(found, RunFailure), "it did fit"
    assert found.code is Code.RESOURCE_EXHAUSTED, found.message
    yield {"what": "does not fit, and fails", "ms": took}
    yield {"what": "fits, after that", "ms": milliseconds(partial(answered, model, small), stage.seconds / 4)}


PART = Part("memory", "On a GPU: its memory", HOW, COLUMNS, cases, limit=150)

"""Bound runs beside plain ones, and page-locked staging beside pageable: what the worker's binding is worth."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.bench.gpu.networks import Network
from tests.bench.gpu.results import Line
from tests.bench.gpu.sessions import answered, is_bound, loaded, milliseconds, plain
from tests.bench.gpu.stage import NETWORK, Case, Column, Part, Stage, of
from worker.inference.running.device_memory import Bytes, DeviceMemory, memory_for
from worker.inference.running.io_binding import BoundRuns

COPIED = 64 << 20  # bytes
NO_GPU = "runs are bound on a GPU alone"
BOUND = """The same session of the worker: through I/O binding, and `session.run`. Medians, milliseconds."""
PINNED = """The worker's bound runs with its page-locked staging, and with memory that the system may move, which CUDA
copies once more. Medians, milliseconds; of the copies alone, GB/s of 64 MiB to the device."""


class Pageable(DeviceMemory):
    """The same with staging that is not page-locked."""

    def host(self, size: int) -> Bytes:
        memory = np.empty(size, np.uint8)
        memory.fill(0)  # the system gives memory when it is written to
        return memory


def _sizes(network: Network) -> tuple[int, ...]:
    return (1, network.batch, 4 * network.batch)


def binding(stage: Stage) -> Iterator[Case]:
    """Each network, one row, a batch and four of them."""
    for network in stage.networks:
        yield Case(of(network), partial(_bound, stage, network))


def _bound(stage: Stage, network: Network) -> Iterator[Line]:
    model = loaded(stage.model(network), stage.device, max(_sizes(network)))
    for batch in _sizes(network):
        feeds = network.feeds(batch)
        plain_ms = milliseconds(partial(plain(model), feeds), stage.seconds / 4)
        bound_ms = milliseconds(partial(answered, model, feeds), stage.seconds / 4) if is_bound(model) else None
        ratio = None if bound_ms is None else plain_ms / bound_ms
        missing = "" if is_bound(model) else NO_GPU if not stage.is_gpu else model.device.reason
        yield {"batch": batch, "plain_ms": plain_ms, "bound_ms": bound_ms, "ratio": ratio, "missing": missing}


def pinned(stage: Stage) -> Iterator[Case]:
    """The copies alone, then each network."""
    yield Case({"network": "copies alone"}, partial(_copies, stage))
    for network in stage.networks:
        yield Case(of(network), partial(_staged, stage, network))


def _copies(stage: Stage) -> Iterator[Line]:
    model = loaded(stage.model(stage.networks[0]), stage.device, 2)
    memory = memory_for(model._session)
    assert memory is not None, NO_GPU
    rates = {}
    for name, kind in (("page_locked", memory), ("pageable", Pageable(memory._runtime, memory.device))):
        host, near = kind.host(COPIED), kind.near(COPIED)
        rates[name] = COPIED / milliseconds(partial(kind.upload, host, near), stage.seconds / 4) / 1e6
    yield {f"{name}_gb_s": rate for name, rate in rates.items()}


def _staged(stage: Stage, network: Network) -> Iterator[Line]:
    model = loaded(stage.model(network), stage.device, max(_sizes(network)))
    memory = memory_for(model._session)
    assert memory is not None, NO_GPU
    pageable = Pageable(memory._runtime, memory.device)
    kinds = {
        f"{name}_ms": BoundRuns(model._session, model.signature, kind, max(_sizes(network)))
        for name, kind in (("page_locked", memory), ("pageable", pageable))
    }
    for batch in _sizes(network):
        feeds = network.feeds(batch)
        found = {name: milliseconds(partial(run, feeds), stage.seconds / 4) for name, run in kinds.items()}
        yield {"batch": batch, **found, "ratio": found["pageable_ms"] / found["page_locked_ms"]}


BINDING = Part(
    "binding",
    "On a GPU: bound and plain runs",
    BOUND,
    (
        *NETWORK,
        Column("batch", "batch", "d"),
        Column("plain_ms", "plain"),
        Column("bound_ms", "bound"),
        Column("ratio", "plain / bound", ".2f"),
    ),
    binding,
    limit=120,
)
PINNED_PART = Part(
    "pinned",
    "On a GPU: page-locked and pageable staging",
    PINNED,
    (
        *NETWORK,
        Column("batch", "batch", "d"),
        Column("page_locked_ms", "page-locked"),
        Column("pageable_ms", "pageable"),
        Column("ratio", "pageable / page-locked", ".2f"),
        Column("page_locked_gb_s", "page-locked, GB/s", ".1f"),
        Column("pageable_gb_s", "pageable, GB/s", ".1f"),
    ),
    pinned,
    limit=120,
)

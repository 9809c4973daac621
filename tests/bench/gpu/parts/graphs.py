"""CUDA graphs for batches of one fixed size: what replaying a run would save. The worker does not do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime

from tests.bench.gpu.networks import Feeds, Network
from tests.bench.gpu.results import Line
from tests.bench.gpu.sessions import milliseconds, opened
from tests.bench.gpu.stage import NETWORK, Case, Column, Part, Stage, of
from worker.core.records import Array

BATCHES = (1, 8, 64)
TOLERANCE = 2e-2  # of the largest number, as FP16's in the tests
HOW = """One session, buffers on the device that stay where they are; each run copies its inputs there and its outputs
back. Launched: each kernel anew. Replayed: `enable_cuda_graph`, the run as it was captured. Medians, milliseconds."""
COLUMNS = (
    *NETWORK,
    Column("batch", "batch", "d"),
    Column("launched_ms", "launched"),
    Column("replayed_ms", "replayed"),
    Column("gain", "launched / replayed", ".2f"),
)


def cases(stage: Stage) -> Iterator[Case]:
    """Each network; ragged texts have no fixed size."""
    for network in stage.networks:
        if not network.is_ragged:
            yield Case(of(network), partial(_network, stage, network))


def _network(stage: Stage, network: Network) -> Iterator[Line]:
    assert stage.is_gpu, "CUDA graphs need a GPU"
    for batch in BATCHES:
        feeds = network.feeds(batch)
        launched, replayed = (_run(stage.model(network), feeds, graph) for graph in ("0", "1"))
        _compare(launched(), replayed())
        found = [milliseconds(run, stage.seconds / 4) for run in (launched, replayed)]
        yield {"batch": batch, "launched_ms": found[0], "replayed_ms": found[1], "gain": found[0] / found[1]}


def _run(model: Path, feeds: Feeds, graph: str) -> Callable[[], list[Array]]:
    """A session of its own: a graph is captured once, with its addresses."""
    session = opened(model, "cuda", enable_cuda_graph=graph)
    binding = session.io_binding()
    inputs = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0) for name, array in feeds.items()}
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    outputs = [_place(session, at, feeds) for at in range(len(session.get_outputs()))]
    for about, value in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_ortvalue_output(about.name, value)

    def run() -> list[Array]:
        for name, value in inputs.items():
            value.update_inplace(feeds[name])
        session.run_with_iobinding(binding)
        return [value.numpy() for value in outputs]

    return run


def _place(session: onnxruntime.InferenceSession, at: int, feeds: Feeds) -> onnxruntime.OrtValue:
    """The device's memory for an output, of the shape that follows from the feeds' by the names of their axes."""
    sizes = {
        axis: size
        for given in session.get_inputs()
        for axis, size in zip(given.shape, feeds[given.name].shape, strict=True)
    }
    about = session.get_outputs()[at]
    shape = [sizes.get(axis, axis) for axis in about.shape]
    dtype = {"tensor(float)": np.float32, "tensor(float16)": np.float16}[about.type]
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, dtype, "cuda", 0)


def _compare(launched: list[Array], replayed: list[Array]) -> None:
    for ours, theirs in zip(replayed, launched, strict=True):
        far = float(np.abs(ours.astype(np.float64) - theirs).max() / max(1e-9, np.abs(theirs).max()))
        assert far <= TOLERANCE, f"a replayed run is off by {far:.1e} of the largest number"


PART = Part("graphs", "On a GPU: CUDA graphs", HOW, COLUMNS, cases, limit=120)

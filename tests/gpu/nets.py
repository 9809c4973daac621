"""Networks of the kinds that a GPU is bought for, their inputs, and their forms in FP16."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper

from tests.models import encoder, gru, mlp, save
from tests.residual import CHANNELS, SIDE, resnet50
from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.inference.model import Model
from worker.inference.model_loading import load
from worker.settings import ModelSettings

WIDTH = 256
MOST_HALF = 65_504.0  # the largest number in FP16
Feeds = Mapping[str, Array]


class Net(NamedTuple):
    """A network: a function that builds it, and one that makes rows for it."""

    build: Callable[[], bytes]
    feeds: Callable[[int], Feeds]


def _rows(*shape: int) -> Callable[[int], Feeds]:
    return lambda rows: {"x": np.random.default_rng(rows).random((rows, *shape), np.float32)}


def _texts(rows: int) -> Feeds:
    """Texts of up to 32 tokens, padded."""
    rng = np.random.default_rng(rows)
    lengths = rng.integers(4, 33, (rows, 1))
    mask = (np.arange(32) < lengths).astype(np.int64)
    return {"input_ids": rng.integers(0, 100, (rows, 32)) * mask, "attention_mask": mask}


def _steps(rows: int) -> Feeds:
    rng = np.random.default_rng(rows)
    return {"x": rng.random((rows, 4), np.float32), "h_in": rng.random((rows, 16), np.float32)}


NETS = {
    "small MLP": Net(lambda: mlp(WIDTH, (WIDTH,), 16), _rows(WIDTH)),
    "large MLP": Net(lambda: mlp(WIDTH, (2048, 2048, 2048), 16), _rows(WIDTH)),
    "ResNet-50": Net(resnet50, _rows(CHANNELS, SIDE, SIDE)),
    "encoder": Net(lambda: encoder(layers=4, width=256, heads=4), _texts),
    "GRU": Net(lambda: gru(resets_after=1), _steps),
}


def on_gpu(folder: Path, model: bytes, *, has_tf32: bool = False, rows: int = 8, **settings: Any) -> Model:
    """The model as the worker loads it on CUDA, but without padding: each batch runs with its own rows."""
    as_they_are = {"full_batches": "never", "provider_options": {"CUDAExecutionProvider.use_tf32": str(int(has_tf32))}}
    chosen = ModelSettings(path=save(model, folder), device="cuda", **{**as_they_are, **settings})
    return load(chosen, max_batch_size=rows)


def outputs(model: Model, feeds: Feeds) -> Sequence[Array]:
    """The model's outputs in order."""
    found = model.run(feeds)
    assert not isinstance(found, RunFailure), found
    return found


def on_cpu(model: bytes, feeds: Feeds) -> Sequence[Array]:
    """ONNX Runtime's own outputs on the CPU."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    found: Sequence[Array] = session.run(None, dict(feeds))
    return found


def in_half(model: bytes) -> bytes:
    """A model with weights, inputs, outputs and casts in FP16 where they are FP32.

    A mask's -1e9 lies beyond the range of FP16: it becomes FP16's least number, or its product with 0 would be NaN.
    """
    made = onnx.load_from_string(model)
    values = [value.type.tensor_type for value in (*made.graph.input, *made.graph.output)]
    for kind in values:
        if kind.elem_type == TensorProto.FLOAT:
            kind.elem_type = TensorProto.FLOAT16
    for weight in made.graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            within = np.clip(numpy_helper.to_array(weight), -MOST_HALF, MOST_HALF)
            weight.CopyFrom(numpy_helper.from_array(within.astype(np.float16), weight.name))
    for attribute in (each for node in made.graph.node if node.op_type == "Cast" for each in node.attribute):
        if attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.FLOAT16
    return bytes(made.SerializeToString())

"""The networks that are measured, in FP32 and in FP16, and their requests. Random weights cost as much as real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.gpu.nets import in_half
from tests.models import encoder, mlp
from tests.ragged import BUCKETS, PROTOBUF, as_request, long_tailed, padded, row_of, texts
from tests.residual import CHANNELS, SIDE, resnet50
from worker.codecs.wire_contract import OCTETS
from worker.core.records import Array

FP32, FP16 = PRECISIONS = ("FP32", "FP16")
FLOATS = {FP32: "float32", FP16: "float16"}
WIDTH = 256  # of a row for the MLPs
TOKENS = 128  # of each text, where all texts have equal lengths
VOCABULARY = 30_522  # BERT's
KINDS, KEPT = 1000, 64 << 20  # the most different requests, and the most bytes of them

Feeds = Mapping[str, Array]
Headers = tuple[tuple[str, bytes], ...]


class Rows(NamedTuple):
    """Requests that are plain rows of the model's only input."""

    dtype: str
    shape: tuple[int, ...]
    headers: Headers = (("content-type", OCTETS.encode()),)

    def values(self, count: int) -> list[bytes]:
        """Makes `count` different values, or as many as fit into `KEPT` bytes."""
        size = int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize
        shape, rng = (min(count, max(1, KEPT // size)), *self.shape), np.random.default_rng(3)
        drawn = rng.integers(0, 256, shape) if self.dtype == "uint8" else rng.standard_normal(shape, np.float32)
        return [row.tobytes() for row in drawn.astype(self.dtype)]

    def batch(self, values: Sequence[bytes]) -> Feeds:
        """Joins values into one batch for the model."""
        return {"x": np.frombuffer(b"".join(values), self.dtype).reshape(len(values), *self.shape)}


class Texts(NamedTuple):
    """Requests of `tokens` token ids each, in protobuf; None: of all lengths, with a mean of 40."""

    tokens: int | None
    headers: Headers = (PROTOBUF,)

    def values(self, count: int) -> list[bytes]:
        """Makes `count` different values."""
        lengths = long_tailed(count) if self.tokens is None else [self.tokens] * count
        return [as_request(row) for row in texts(lengths, VOCABULARY)]

    def batch(self, values: Sequence[bytes]) -> Feeds:
        """Joins values into one batch for the model, padded to the longest."""
        rows = [row_of(value) for value in values]
        return padded(rows, max(map(len, rows)))


class Network(NamedTuple):
    """A network in one precision. `batch`: rows of an inference in the worker; `settings`: further settings of it."""

    name: str
    precision: str
    build: Callable[[], bytes]
    form: Rows | Texts
    batch: int
    settings: Mapping[str, str] = {}

    @property
    def title(self) -> str:
        return f"{self.name}, {self.precision}"

    @property
    def is_ragged(self) -> bool:
        """True if its requests differ in length."""
        return isinstance(self.form, Texts) and self.form.tokens is None

    def feeds(self, rows: int) -> Feeds:
        """Makes one batch of so many rows."""
        values = self.form.values(min(rows, KINDS))
        return self.form.batch([values[at % len(values)] for at in range(rows)])


def of_pixels(model: bytes) -> bytes:
    """Changes the input x (batch, *dims) of a model to UINT8, divided by 255 in the graph: images travel as bytes."""
    made = onnx.load_from_string(model)
    (x,) = made.graph.input
    kind = x.type.tensor_type.elem_type
    for node in made.graph.node:
        node.input[:] = ["scaled" if name == "x" else name for name in node.input]
    x.type.tensor_type.elem_type = TensorProto.UINT8
    first = [
        helper.make_node("Cast", ["x"], ["wide"], to=kind),
        helper.make_node("Mul", ["wide", "scale"], ["scaled"]),
    ]
    for at, node in enumerate(first):
        made.graph.node.insert(at, node)
    scale = np.array(1 / 255, helper.tensor_dtype_to_np_dtype(kind))
    made.graph.initializer.append(numpy_helper.from_array(scale, "scale"))
    return bytes(made.SerializeToString())


def _in(precision: str, model: bytes) -> bytes:
    return model if precision == FP32 else in_half(model)


def _networks(precision: str) -> list[Network]:
    floats = FLOATS[precision]

    def dense(*hidden: int) -> Callable[[], bytes]:
        return lambda: _in(precision, mlp(WIDTH, hidden, 16))

    def transformer(layers: int, width: int) -> Callable[[], bytes]:
        return lambda: _in(precision, encoder(layers, width, 12, VOCABULARY))

    images = Rows("uint8", (CHANNELS, SIDE, SIDE))
    return [
        Network("ResNet-50", precision, lambda: of_pixels(_in(precision, resnet50())), images, 64),
        Network("BERT-base", precision, transformer(12, 768), Texts(TOKENS), 32),
        Network("large MLP", precision, dense(2048, 2048, 2048), Rows(floats, (WIDTH,)), 256),
        Network("MiniLM", precision, transformer(6, 384), Texts(None), 64, {"BATCHING__BUCKETS": BUCKETS}),
        Network("small MLP", precision, dense(WIDTH), Rows(floats, (WIDTH,)), 256),
    ]


NETWORKS = [network for pair in zip(_networks(FP32), _networks(FP16), strict=True) for network in pair]
NAMES = tuple(dict.fromkeys(network.name for network in NETWORKS))

"""Crayfish's two networks, and events for them: random numbers from 0 to 1, as JSON or as plain rows.

Its own JSON is not ours. It has the numbers in one string, separated by commas, beside the instant of the creation,
two sizes and the place for the prediction; its answer is the whole event once more, with the prediction as a string.
Ours is an Open Inference Protocol request with the numbers as JSON numbers, about as long (a test has it), and its
answer holds the outputs alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import orjson

from tests.models import mlp
from tests.residual import CHANNELS, SIDE, resnet50
from worker.codecs.examples import EncodedRequest
from worker.codecs.wire_contract import JSON, OCTETS
from worker.core.records import Array

FORMS = {"JSON": JSON, "rows": OCTETS}
KINDS, KEPT = 1000, 16 << 20  # different events at most, and bytes of them
FLOAT = 4


@dataclass(frozen=True, slots=True)
class Network:
    """One of the two. `input_rate`: events a second of Crayfish's runs with more copies; what follows is our choice.

    `batch`: events that share an inference at most. `outstanding`: those of a closed loop. `count`: those of an open
    loop, some seconds' work.
    """

    name: str
    build: Callable[[], bytes]
    shape: tuple[int, ...]
    input_rate: int
    batch: int
    outstanding: int
    count: int


# 784 → 32 → 32 → 32 → 32 → 10 with biases, as `resources/training/convert_ffnn.py` has it: 28,618 parameters.
FFNN = Network("FFNN", lambda: mlp(784, (32,) * 4, 10), (784,), 30_000, batch=64, outstanding=4096, count=100_000)
# On a CPU images that share an inference gain nothing, and the first of them waits for the last.
RESNET = Network("ResNet-50", resnet50, (CHANNELS, SIDE, SIDE), 256, batch=4, outstanding=32, count=300)
NETWORKS = (FFNN, RESNET)
# On a GPU they do: as many as a request of each size lets it have.
ON_GPU = (FFNN, replace(RESNET, batch=32, outstanding=256, count=1000))


def events(network: Network, form: str, rows: int = 1) -> Sequence[EncodedRequest]:
    """Different ones, as many as fit in little memory; a load repeats them. `rows`: images of one event."""
    kinds = max(1, min(KINDS, KEPT // (FLOAT * rows * math.prod(network.shape))))
    images = np.random.default_rng(7).random((kinds, rows, *network.shape), np.float32)
    write: Callable[[Array], bytes] = as_json if form == "JSON" else bytes
    return [EncodedRequest((("content-type", FORMS[form].encode()),), write(each)) for each in images]


def as_json(images: Array) -> bytes:
    """An Open Inference Protocol request. The shortest digits that name each float, as Java writes them, too."""
    x = {"name": "x", "shape": images.shape, "datatype": "FP32", "data": images.ravel()}
    return orjson.dumps({"inputs": [x]}, option=orjson.OPT_SERIALIZE_NUMPY)


def crayfish_json(images: Array, created_ms: int) -> bytes:
    """The same images as Crayfish sends them: for its size alone, the worker does not read it."""
    numbers = "".join(f"{number!s}," for number in images.ravel())
    sizes = {"dataPointSz1": len(images), "dataPointSz2": images[0].size}
    return orjson.dumps({"creationTimestamp": created_ms, **sizes, "dataPoint": numbers, "prediction": None})

"""Trains the demo's classifier and writes `digits.onnx`: `python -m tests.train_digits`, 30 s.

Residual blocks, 44 of them, gone through four times with the same weights: narrow and deep, so that one run is many
small steps. That is what batching helps most, and what keeps the file small. Seeded: one machine, one file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from worker.tools.demo.digits import CLASSES, MODEL, PIXELS, Images, held_out, learned

Floats = NDArray[np.float32]

WIDTH = 128
BLOCKS = 44
PASSES = 4
EPOCHS = 40
MINIBATCH = 128
LEARNING_RATE = 2e-3
# Pixels are blurred by so much noise while learning; without it the network learns 1,437 images by heart.
NOISE = 0.25
EPSILON = 1e-5


@dataclass
class Network:
    """The weights. `blocks` holds a matrix (WIDTH, WIDTH) and a bias (WIDTH,) for each."""

    enter: list[Floats]
    blocks: list[list[Floats]]
    leave: list[Floats]

    @classmethod
    def random(cls, rng: np.random.Generator) -> Network:
        """Small steps per block at first: 176 of them add up."""
        step = 1 / np.sqrt(BLOCKS * PASSES)
        return cls(
            _linear(rng, PIXELS, WIDTH, 1.0),
            [_linear(rng, WIDTH, WIDTH, step) for _ in range(BLOCKS)],
            _linear(rng, WIDTH, CLASSES, 1.0),
        )

    def weights(self) -> Iterator[Floats]:
        for layer in (self.enter, *self.blocks, self.leave):
            yield from layer

    def logits(self, pixels: Floats) -> tuple[Floats, list[Any]]:
        """Scores of shape (n, 10), and the tape from which `gradients` goes back."""
        hidden = pixels @ self.enter[0] + self.enter[1]
        tape: list[Any] = []
        for weight, bias in self.blocks * PASSES:
            normal, scale = _normalised(hidden)
            stepped = np.maximum(normal @ weight + bias, 0)
            tape.append((normal, scale, stepped > 0))
            hidden = hidden + stepped
        normal, scale = _normalised(hidden)
        tape.append((normal, scale))
        return normal @ self.leave[0] + self.leave[1], tape

    def gradients(self, pixels: Floats, tape: list[Any], error: Floats) -> list[Floats]:
        """Of the mean loss, for `error` = d loss / d logits, in the order of `weights`."""
        normal, scale = tape.pop()
        leave = [normal.T @ error, error.sum(axis=0)]
        back = _denormalised(error @ self.leave[0].T, normal, scale)
        blocks = [[np.zeros_like(w), np.zeros_like(b)] for w, b in self.blocks]
        for (weight, _), total in zip(reversed(self.blocks * PASSES), reversed(blocks * PASSES), strict=True):
            normal, scale, is_active = tape.pop()
            inner = back * is_active
            total[0] += normal.T @ inner
            total[1] += inner.sum(axis=0)
            back = back + _denormalised(inner @ weight.T, normal, scale)
        return [pixels.T @ back, back.sum(axis=0), *(part for block in blocks for part in block), *leave]


def _linear(rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> list[Floats]:
    weight = rng.standard_normal((inputs, outputs), dtype=np.float32) * np.float32(gain / np.sqrt(inputs))
    return [weight, np.zeros(outputs, np.float32)]


def _normalised(hidden: Floats) -> tuple[Floats, Floats]:
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + np.float32(EPSILON))
    return centred * scale, scale


def _denormalised(back: Floats, normal: Floats, scale: Floats) -> Floats:
    along = (back * normal).mean(axis=1, keepdims=True)
    result: Floats = scale * (back - back.mean(axis=1, keepdims=True) - normal * along)
    return result


def train(images: Images, rng: np.random.Generator) -> Network:
    """Adam on cross-entropy, the rate falling along a cosine."""
    network = Network.random(rng)
    moments = [(np.zeros_like(w), np.zeros_like(w)) for w in network.weights()]
    steps = EPOCHS * (len(images.labels) // MINIBATCH)
    for step in range(steps):
        gradients = network.gradients(*_mistakes(network, *_minibatch(images, rng)))
        rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
        for weight, moment, gradient in zip(network.weights(), moments, gradients, strict=True):
            np.subtract(weight, _adam(moment, gradient, rate, step + 1), out=weight)
    return network


def _minibatch(images: Images, rng: np.random.Generator) -> Images:
    chosen = rng.choice(len(images.labels), MINIBATCH, replace=False)
    noise = rng.standard_normal((MINIBATCH, PIXELS), dtype=np.float32) * np.float32(NOISE)
    return Images(images.pixels[chosen] + noise, images.labels[chosen])


def _mistakes(network: Network, pixels: Floats, labels: NDArray[np.int64]) -> tuple[Floats, list[Any], Floats]:
    """What `gradients` wants: the pixels, the tape, and d loss / d logits."""
    logits, tape = network.logits(pixels)
    error = _softmax(logits) - np.eye(CLASSES, dtype=np.float32)[labels]
    return pixels, tape, error / np.float32(len(labels))


def _softmax(scores: Floats) -> Floats:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: Floats = raised / raised.sum(axis=1, keepdims=True)
    return result


def _adam(moment: tuple[Floats, Floats], gradient: Floats, rate: float, step: int) -> Floats:
    first, second = moment
    first += 0.1 * (gradient - first)
    second += 0.001 * (gradient**2 - second)
    result: Floats = (rate * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)).astype(np.float32)
    return result


def accuracy(network: Network, images: Images) -> float:
    """The share of the images that it names rightly."""
    return float((network.logits(images.pixels)[0].argmax(axis=1) == images.labels).mean())


class Graph:
    """An ONNX graph as it grows. Weights are kept as 16-bit floats and cast at load: half the file."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._stored: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """The name of what the operator gives."""
        name = output or f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def weight(self, name: str, values: Floats) -> str:
        self._stored.append(numpy_helper.from_array(values.astype(np.float16), f"{name}_16"))
        return self.add("Cast", f"{name}_16", output=name, to=TensorProto.FLOAT)

    def model(self) -> onnx.ModelProto:
        """`pixels` float32 (batch, 64) in, `probabilities` float32 (batch, 10) out."""
        graph = helper.make_graph(
            self._nodes,
            "digits",
            [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", PIXELS])],
            [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", CLASSES])],
            self._stored,
        )
        # Opset 17 is the first with LayerNormalization; IR 9 is read by ONNX Runtime 1.16 and later.
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        return model


def exported(network: Network) -> onnx.ModelProto:
    """The network as an ONNX model."""
    graph = Graph()
    ones = graph.weight("ones", np.ones(WIDTH, np.float32))
    blocks = [_stored(graph, f"block_{at}", block) for at, block in enumerate(network.blocks)]
    hidden = graph.add("Gemm", "pixels", *_stored(graph, "enter", network.enter))
    for block in blocks * PASSES:
        normal = graph.add("LayerNormalization", hidden, ones, epsilon=EPSILON)
        hidden = graph.add("Add", hidden, graph.add("Relu", graph.add("Gemm", normal, *block)))
    normal = graph.add("LayerNormalization", hidden, ones, epsilon=EPSILON)
    graph.add("Softmax", graph.add("Gemm", normal, *_stored(graph, "leave", network.leave)), output="probabilities")
    return graph.model()


def _stored(graph: Graph, name: str, layer: list[Floats]) -> tuple[str, str]:
    return graph.weight(f"{name}_weight", layer[0]), graph.weight(f"{name}_bias", layer[1])


def main() -> None:
    """Train, say how good it is on the images held out, and write the file."""
    network = train(learned(), np.random.default_rng(1))
    sys.stdout.write(f"right on {accuracy(network, held_out()):.1%} of the images held out\n")
    onnx.save(exported(network), MODEL)


if __name__ == "__main__":
    main()

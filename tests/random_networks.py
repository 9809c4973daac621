"""Small random networks: some whose rows are independent, and some whose rows are not.

The construction decides how rows depend on each other. Some networks never show it: all their answers are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests import models

ENDS = ("none", "Relu", "Sigmoid", "Softmax", "ArgMax")


class _Net:
    """One network: its nodes, its randomness, and the last value made with its width."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = models.Graph(self.rng)
        self.last, self.width = "x", 0

    def node(self, kind: str, *more: str, **attributes: Any) -> None:
        self.last = self.graph.node(kind, self.last, *more, **attributes)

    def less(self, other: str) -> None:
        self.last = self.graph.node("Sub", self.last, other)

    def dense(self, outputs: int) -> None:
        self.last = self.graph.dense(self.last, self.width, outputs)
        self.width = outputs

    def dense_in_integers(self, outputs: int) -> None:
        """A dense layer in the form that `quantize_dynamic` writes."""
        graph, inputs = self.graph, self.width
        steps, size, zero = (f"{name}{len(graph.nodes)}" for name in ("steps", "size", "zero"))
        graph.nodes.append(helper.make_node("DynamicQuantizeLinear", [self.last], [steps, size, zero]))
        weights = self.rng.integers(-127, 127, (inputs, outputs))
        product = graph.node("MatMulInteger", steps, graph.constant(weights, np.int8), zero)
        scaled = graph.node("Mul", size, graph.constant(inputs**-0.5 / 127))
        self.last = graph.node("Mul", graph.node("Cast", product, to=TensorProto.FLOAT), scaled)
        self.last = graph.node("Add", self.last, graph.random(outputs, scale=float(self.rng.choice([0.0, 0.1]))))
        self.width = outputs


def _softmax_over_rows(net: _Net) -> None:
    net.node("Softmax", axis=0)


def _running_sums(net: _Net) -> None:
    net.node("CumSum", net.graph.constant(0, np.int64))


def _less_the_mean(net: _Net) -> None:
    net.less(net.graph.node("ReduceMean", net.last, axes=[0], keepdims=1))


def _less_the_largest(net: _Net) -> None:
    net.less(net.graph.node("ReduceMax", net.last, axes=[0], keepdims=1))


def _normalised_in_training(net: _Net) -> None:
    _less_the_mean(net)
    variance = net.graph.node("ReduceMean", net.graph.node("Mul", net.last, net.last), axes=[0], keepdims=1)
    net.node("Div", net.graph.node("Sqrt", net.graph.node("Add", variance, net.graph.constant(1e-5))))


def _sorted(net: _Net) -> None:
    sorted_, places = f"sorted{len(net.graph.nodes)}", f"places{len(net.graph.nodes)}"
    count = net.graph.node("Shape", net.last, start=0, end=1)
    net.graph.nodes.append(helper.make_node("TopK", [net.last, count], [sorted_, places], axis=0))
    net.last = sorted_


def _attending_to_rows(net: _Net) -> None:
    scores = net.graph.node("MatMul", net.last, net.graph.node("Transpose", net.last, perm=(1, 0)))
    net.last = net.graph.node("MatMul", net.graph.node("Softmax", scores, axis=-1), net.last)


def _recurrent_over_rows(net: _Net) -> None:
    """A recurrent layer whose first axis is the time."""
    graph, state = net.graph, 5
    steps = graph.node("Unsqueeze", net.last, graph.constant([1], np.int64))
    weights = graph.random(1, 4 * state, net.width, scale=net.width**-0.5), graph.random(1, 4 * state, state, scale=0.4)
    states = graph.node("LSTM", steps, *weights, hidden_size=state)
    net.last, net.width = graph.node("Squeeze", states, graph.constant([1, 2], np.int64)), state


DEPENDENCES: dict[str, Callable[[_Net], None]] = {
    "softmax over rows": _softmax_over_rows,
    "running sums": _running_sums,
    "less the mean": _less_the_mean,
    "less the largest": _less_the_largest,
    "normalised in training": _normalised_in_training,
    "sorted": _sorted,
    "attention to rows": _attending_to_rows,
    "recurrent over rows": _recurrent_over_rows,
}


def network(seed: int, dependence: str | None) -> bytes:
    """A network of numbers, ids or texts. Rows depend on each other as named or `quantised`, or (None) not at all."""
    net = _Net(seed)
    inputs = _begin(net)
    for _ in range(net.rng.integers(1, 3)):
        width = int(net.rng.choice([3, 8]))
        net.dense_in_integers(width) if dependence == "quantised" else net.dense(width)
        net.node("Relu")
    if dependence in DEPENDENCES:
        DEPENDENCES[dependence](net)
    net.dense(4)
    return net.graph.model(f"{inputs} => {_end(net, ENDS[seed % len(ENDS)])}")


def _begin(net: _Net) -> str:
    kind = net.rng.choice(["numbers", "numbers", "ids", "texts"])
    net.width = int(net.rng.choice([4, 8, 20])) if kind == "numbers" else 6
    if kind == "numbers":
        return f"float[batch, {net.width}] x"
    if kind == "texts":
        net.node("Cast", to=TensorProto.FLOAT)
        return f"string[batch, {net.width}] x"
    words = net.graph.node("Gather", net.graph.random(10, net.width), "x")
    mask = net.graph.node("Cast", "mask", to=TensorProto.FLOAT)
    masks = net.graph.node("Unsqueeze", mask, net.graph.constant([2], np.int64))
    kept = net.graph.node("Mul", words, masks)
    net.last = net.graph.node("ReduceSum", kept, net.graph.constant([1], np.int64), keepdims=0)
    return "int64[batch, length] x, int64[batch, length] mask"


def _end(net: _Net, kind: str) -> str:
    if kind == "ArgMax":
        net.graph.node("ArgMax", net.last, axis=1, keepdims=0, gives="y")
        return "int64[batch] y"
    net.graph.node("Identity" if kind == "none" else kind, net.last, gives="y")
    return f"float[batch, {net.width}] y"

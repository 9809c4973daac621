"""Models with state: the right output and state of a key, row by row, without ONNX Runtime. Pure.

Each reads a part of a request's row; its output stands in the answer behind the stateless model's outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from tests.faults.requests import ROOTS, Rows
from tests.models import gru, running_mean

State = NDArray[np.float64]


class Memory(Protocol):
    """A model with state."""

    model: bytes
    tensors: Mapping[str, str]  # as in STATE__TENSORS
    columns: slice  # of a request's row: its input
    width: int  # columns of its output
    tolerance: float  # of its output and state
    initial: State

    def after(self, state: State, row: Rows) -> State:
        """The state that a row leaves."""

    def told(self, state: State) -> NDArray[Any]:
        """The output for the row that left this state."""

    def read(self, value: bytes) -> State:
        """The state at the end of a changelog value."""


class Mean:
    """The mean of all inputs."""

    model = running_mean()
    tensors: Mapping[str, str] = {"sum_in": "sum_out", "count_in": "count_out"}
    columns = slice(1, 2)
    width = 1
    tolerance = 0.0
    initial: State = np.zeros(2)

    def after(self, state: State, row: Rows) -> State:
        return np.array([state[0] + row[0], state[1] + 1.0])

    def told(self, state: State) -> NDArray[Any]:
        return np.array([state[0] / state[1]], np.float32)

    def read(self, value: bytes) -> State:
        [(total, count)] = np.frombuffer(value[-16:], "<f8, <i8").tolist()
        return np.array([total, count])


class Gru:
    """A recurrent net: unlike the mean it depends on the order of inputs. Replayed in double precision."""

    UNITS = 16

    tensors: Mapping[str, str] = {"h_in": "h_out"}
    columns = slice(1, 1 + ROOTS)
    width = 3
    tolerance = 1e-5
    initial: State = np.zeros(UNITS)

    def __init__(self) -> None:
        self.model = gru(ROOTS, self.UNITS, self.width)
        constants = onnx.load_from_string(self.model).graph.initializer
        of = {tensor.name: numpy_helper.to_array(tensor).astype(np.float64) for tensor in constants}
        # The weights of the update gate, the reset gate and the candidate, in ONNX's order.
        self._of_row = of["w"].reshape(3, self.UNITS, ROOTS)
        self._of_state = of["r"].reshape(3, self.UNITS, self.UNITS)
        self._biases, self._state_biases = of["b"].reshape(2, 3, self.UNITS)
        self._head = of["head"]

    def after(self, state: State, row: Rows) -> State:
        asked = self._of_row @ row.astype(np.float64) + self._biases + self._state_biases
        update, reset = 1.0 / (1.0 + np.exp(-(asked[:2] + self._of_state[:2] @ state)))
        candidate = np.tanh(asked[2] + self._of_state[2] @ (reset * state))
        after: State = (1.0 - update) * candidate + update * state
        return after

    def told(self, state: State) -> NDArray[Any]:
        told: State = state @ self._head
        return told

    def read(self, value: bytes) -> State:
        return np.frombuffer(value[-4 * self.UNITS :], "<f4").astype(np.float64)


MEMORIES: Mapping[str, Memory] = {"mean": Mean(), "gru": Gru()}

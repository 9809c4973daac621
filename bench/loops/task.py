"""What a loop of the comparison is asked to do, and the model call that all of them share.

Read by contenders that run in other environments than this project's: it imports nothing but NumPy and ONNX Runtime.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

Floats = np.ndarray[Any, np.dtype[np.float32]]
Run = Callable[[Floats], Floats]


class Task(NamedTuple):
    """From where to where, and with what; on the command line in this order.

    `batch` is in rows; `rate` is the most records a second, for those that can be held back; 0: all there are.
    """

    bootstrap: str
    requests: str
    responses: str
    group: str
    model: str
    batch: int
    rate: int = 0

    @classmethod
    def from_command_line(cls) -> Task:
        """Of the last words of the command line."""
        bootstrap, requests, responses, group, model, batch, rate = sys.argv[-len(cls._fields) :]
        return cls(bootstrap, requests, responses, group, model, int(batch), int(rate))

    def words(self) -> list[str]:
        """The other way round."""
        return [str(field) for field in self]


def model_call(model: str, batch: int) -> Run:
    """(rows, width) in, (rows, outputs) out, warm at this batch: one thread, as is the worker's default."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(rows: Floats) -> Floats:
        results: Floats = session.run(None, {name: rows})[0]
        return results

    run(np.zeros((batch, session.get_inputs()[0].shape[1]), np.float32))
    return run


def step_call(model: str) -> Callable[[bytes, Floats | None], tuple[bytes, Floats]]:
    """One row of x and the state h_in of its key, None for none, in; its y as bytes and the next state out."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    width = next(given.shape[1] for given in session.get_inputs() if given.name == "h_in")
    nothing = np.zeros(width, np.float32)

    def run(row: bytes, before: Floats | None) -> tuple[bytes, Floats]:
        state = nothing if before is None else before
        feeds = {"x": np.frombuffer(row, "<f4")[None], "h_in": state[None]}
        answer, after = session.run(["y", "h_out"], feeds)
        return answer.tobytes(), after[0]

    return run


def joined(values: Sequence[bytes]) -> Floats:
    """Raw values as one array, a row each."""
    return np.frombuffer(b"".join(values), "<f4").reshape(len(values), -1)

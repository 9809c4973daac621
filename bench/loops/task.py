"""The task of a contender, and the model call that the loops and peers share.

Contenders in other environments than this project's import it, so it imports only NumPy and ONNX Runtime.
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
    """A contender's brokers, topics, group, model and batch, in their order on the command line.

    `batch` is in rows. `rate` is the most records a second, for a loop that can be held back; 0: no limit.
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
        """Reads the task from the last words of the command line."""
        bootstrap, requests, responses, group, model, batch, rate = sys.argv[-len(cls._fields) :]
        return cls(bootstrap, requests, responses, group, model, int(batch), int(rate))

    def words(self) -> list[str]:
        """Returns the task as words for a command line."""
        return [str(field) for field in self]


def opened(model: str) -> onnxruntime.InferenceSession:
    """Opens the model, on one thread like the worker."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def model_call(model: str, batch: int) -> Run:
    """Returns a call: (rows, width) in, (rows, outputs) out; warm at this batch."""
    session = opened(model)
    name = session.get_inputs()[0].name

    def run(rows: Floats) -> Floats:
        results: Floats = session.run(None, {name: rows})[0]
        return results

    run(np.zeros((batch, session.get_inputs()[0].shape[1]), np.float32))
    return run


def step_call(model: str) -> Callable[[bytes, Floats | None], tuple[bytes, Floats]]:
    """Returns a call: a row of x and its key's state h_in (None if new) in, y as bytes and the next state out."""
    session = opened(model)
    width = next(given.shape[1] for given in session.get_inputs() if given.name == "h_in")
    nothing = np.zeros(width, np.float32)

    def run(row: bytes, before: Floats | None) -> tuple[bytes, Floats]:
        state = nothing if before is None else before
        feeds = {"x": np.frombuffer(row, "<f4")[None], "h_in": state[None]}
        answer, after = session.run(["y", "h_out"], feeds)
        return answer.tobytes(), after[0]

    return run


def joined(values: Sequence[bytes]) -> Floats:
    """Joins raw values into one array, a row each."""
    return np.frombuffer(b"".join(values), "<f4").reshape(len(values), -1)

"""What a loop of the comparison is asked to do, and the model call that all of them share.

Read by contenders that run in other environments than this project's: it imports nothing but NumPy and ONNX Runtime.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

Floats = np.ndarray[Any, np.dtype[np.float32]]
Run = Callable[[Floats], Floats]


class Task(NamedTuple):
    """From where to where, and with what; `batch` in rows. On the command line in this order."""

    bootstrap: str
    requests: str
    responses: str
    group: str
    model: str
    batch: int

    @classmethod
    def from_command_line(cls) -> Task:
        """The last words of the command line."""
        *words, batch = sys.argv[-6:]
        return cls(*words, int(batch))  # type: ignore[arg-type, call-arg]  # as many words as there are fields

    def words(self) -> list[str]:
        """The other way round."""
        return [str(field) for field in self]


def model_call(task: Task) -> Run:
    """(rows, width) in, (rows, outputs) out: one thread, as the worker's default is."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(task.model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(rows: Floats) -> Floats:
        results: Floats = session.run(None, {name: rows})[0]
        return results

    run(np.zeros((task.batch, session.get_inputs()[0].shape[1]), np.float32))  # the first run is slow
    return run


def joined(values: list[bytes]) -> Floats:
    """Raw values as one array, a row each."""
    return np.frombuffer(b"".join(values), "<f4").reshape(len(values), -1)

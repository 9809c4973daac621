"""Requests to `models.spinner` whose inference takes a given time, measured on this machine at each run."""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import onnxruntime

from tests.kafka.cluster import Sent
from tests.kafka.scene import RAW_HEADER
from tests.models import spinner

TRIALS, TRIAL_TURNS = 5, 1000


def spin(seconds: float) -> Sent:
    """A request whose inference takes about `seconds`."""
    return Sent(b"k", np.int64(turns(seconds)).tobytes(), [RAW_HEADER])


def turns(seconds: float) -> int:
    """The number of the spinner's turns that take about `seconds`."""
    return int(seconds / _turn())


@cache
def _turn() -> float:
    """Seconds of a core for one turn: a busy machine takes longer. One took 4 µs on one day, 10 µs on another."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(spinner(), options, providers=["CPUExecutionProvider"])
    taken = []
    for _ in range(TRIALS):
        began = time.thread_time()
        session.run(None, {"turns": np.array([[TRIAL_TURNS]], np.int64)})
        taken.append(time.thread_time() - began)
    return min(taken) / TRIAL_TURNS

"""States for tests: a model that sums the values of each key, and the messages of its states in the changelog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from worker.core.records import Array, Fields
from worker.core.tensors.specs import TensorSpec
from worker.state.layout import StateLayout, StateTensor

CHANGELOG = "changelog"
NONSENSE = 777.0  # the row's output is NaN
SPOILT = 999.0  # the next state is NaN
SUMS = (TensorSpec("y", "FP32", (1,)), TensorSpec("next", "FP32", (1,)))
STATE = StateLayout((StateTensor(TensorSpec("sum", "FP32", (1,)), "next"),), (np.zeros(1, "<f4"),))


def sums(feeds: Mapping[str, Array]) -> list[Array]:
    """The sum of all values of each row's key, also as its next state."""
    x, after = feeds["x"], (feeds["x"] + feeds["sum"]).astype("<f4")
    return [np.where(x == NONSENSE, np.nan, after).astype("<f4"), np.where(x == SPOILT, np.nan, after).astype("<f4")]


def state(number: float, *, offset: int = 1, first: bool = False, time: int = 1) -> bytes:
    """A changelog value."""
    (value,) = STATE.written(np.array([offset]), np.array([time]), np.array([first]), [np.full((1, 1), number, "<f4")])
    return value


def number_of(value: bytes) -> float:
    """The state in a changelog value."""
    return float(STATE.tensors_of(STATE.read([value]))[0][0, 0])


def kept(changes: Sequence[Fields]) -> dict[bytes, float]:
    """The states at the end of a changelog."""
    states: dict[bytes, float] = {}
    for _, key, value, *_ in changes:
        assert key is not None
        states.pop(key, None)
        if value is not None:
            states[key] = number_of(value)
    return states

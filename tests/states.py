"""The messages of states in the changelog, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.builders import STATE
from worker.core.records import Fields


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

"""Which values an element of a tensor can have: what an operator gives for inputs, as defaults and as padding."""

from __future__ import annotations

import numpy as np

from worker.core.records import Value
from worker.core.tensors.specs import TensorSpec


def can_be(spec: TensorSpec, value: Value) -> bool:
    """Whether every element can be that value. No kind stands for another, but an integer for a float."""
    kind = spec.dtype.kind
    if kind in "bO" or isinstance(value, bool | str):
        return isinstance(value, bool if kind == "b" else str) and kind in "bO"
    if kind == "f":
        return _is_in_range(spec, value)
    limits = np.iinfo(spec.dtype)
    return isinstance(value, int) and limits.min <= value <= limits.max


def _is_in_range(spec: TensorSpec, value: float) -> bool:
    """NaN and infinity are values of their own; a finite number must not become one."""
    try:
        with np.errstate(over="raise"):
            np.array(value, "f8").astype(spec.dtype)
    except (OverflowError, FloatingPointError):
        return False
    return True


def wanted(spec: TensorSpec) -> str:
    """The values it can have, in words."""
    match spec.dtype.kind:
        case "b":
            return "true or false"
        case "O":
            return "a text"
        case "f":
            return f"a number of at most {np.finfo(spec.dtype).max}"
    limits = np.iinfo(spec.dtype)
    return f"a whole number from {limits.min} to {limits.max}"


def blank(spec: TensorSpec) -> Value:
    """Nothing, as far as its kind knows it."""
    blanks: dict[str, Value] = {"b": False, "O": ""}
    return blanks.get(spec.dtype.kind, 0)

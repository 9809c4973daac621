"""The steps from an output of the model to a field of the answer, each on all rows of a run at once.

A step says what it gives for a spec, or why it cannot take it (`Unfit`); then it makes that of values of the spec. It
raises `RowsFailed` for rows of which nothing can be made. Floats are FP32 or FP64: numpy has no fast FP16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from worker.core.failures import Code, RowFault
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.records.parts import RowsFailed

# So many highest values are found one after the other. Of 1000 numbers a row 3 take 0.7 µs a row, and 51 if all are
# sorted (2026-11).
_FEW = 16

Feeds = Mapping[str, Array]


class Unfit(Exception):
    """A step cannot be taken from values of this spec. The message says what it takes."""


class Step(Protocol):
    """Makes values of each row from values of each row."""

    def gives(self, spec: TensorSpec) -> TensorSpec:
        """The spec of what is made. Raises `Unfit`."""

    def make(self, values: Array, feeds: Feeds) -> Array:
        """The values made, from ones of shape (rows, *dims). `feeds` are the model's inputs of the run."""


class Element:
    """Takes the element at these indexes of the first dimensions."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self._indexes = indexes

    def gives(self, spec: TensorSpec) -> TensorSpec:
        if len(self._indexes) > len(spec.dims):
            raise Unfit(f"{spec} has {len(spec.dims)} dimensions after the batch, not {len(self._indexes)}")
        for index, dim in zip(self._indexes, spec.dims, strict=False):
            if dim is not None and index >= dim:
                raise Unfit(f"{spec} has no element {index}: the first one is 0, the last one {dim - 1}")
        return replace(spec, dims=spec.dims[len(self._indexes) :], symbols=spec.symbols[len(self._indexes) :])

    def make(self, values: Array, feeds: Feeds) -> Array:  # noqa: ARG002
        for index, dim in zip(self._indexes, values.shape[1:], strict=False):
            if index >= dim:
                raise RowsFailed(all_rows(values, f"shape {values.shape} came out, and element {index} is wanted"))
        for index in self._indexes:
            values = values[:, index]
        return values


class At:
    """Takes the element at this index of the last dimension."""

    def __init__(self, index: int) -> None:
        self._index = index

    def gives(self, spec: TensorSpec) -> TensorSpec:
        size = last(spec)
        if size is not None and self._index >= size:
            raise Unfit(f"{spec} has no element {self._index}: the first one is 0, the last one {size - 1}")
        return _without_last(spec)

    def make(self, values: Array, feeds: Feeds) -> Array:  # noqa: ARG002
        _check_last(values, self._index + 1)
        element: Array = values[..., self._index]
        return element


class Wide:
    """Makes FP32 of FP16, which keeps each value."""

    def gives(self, spec: TensorSpec) -> TensorSpec:
        return replace(spec, datatype="FP32")

    def make(self, values: Array, feeds: Feeds) -> Array:  # noqa: ARG002
        return values.astype(np.float32)


class Number:
    """Makes one number, or text, of a tensor of one element: [n, 1] becomes [n]."""

    def gives(self, spec: TensorSpec) -> TensorSpec:
        return replace(spec, dims=(), symbols=())

    def make(self, values: Array, feeds: Feeds) -> Array:  # noqa: ARG002
        return values.reshape(len(values))


class Softmax:
    """Makes probabilities of the last dimension's logits. Their sum is 1."""

    def gives(self, spec: TensorSpec) -> TensorSpec:
        last(spec)
        return floats(spec)

    def make(self, values: Array, feeds: Feeds) -> Array:  # noqa: ARG002
        _check_last(values, 1)
        powers = np.exp(values - values.max(axis=-1, keepdims=True))
        probabilities: Array = powers / powers.sum(axis=-1, keepdims=True)
        return probabilities


class Sigmoid:
    """Makes a probability of each logit for itself."""

    def gives(self, spec: TensorSpec) -> TensorSpec:
        return floats(spec)

    def make(self, values: Array, feeds: Feeds) -> Array:  # noqa: ARG002
        probabilities: Array = 1 / (1 + np.exp(-values))  # where exp gives infinity, the 0 is right
        return probabilities


class Best:
    """Finds the indexes of the highest values in the last dimension, the highest one first, of equals the first."""

    def __init__(self, count: int) -> None:
        self._count = count

    def gives(self, spec: TensorSpec) -> TensorSpec:
        size = last(spec)
        if spec.is_text:
            raise Unfit(f"{spec} has texts, and numbers are needed")
        if size is not None and size < self._count:
            raise Unfit(f"{spec} has {size} elements, and {self._count} are wanted")
        found = _without_last(replace(spec, datatype="INT64"))
        return found if self._count == 1 else replace(found, dims=(*found.dims, self._count))

    def make(self, values: Array, feeds: Feeds) -> Array:  # noqa: ARG002
        """The indexes. A row with NaN has none."""
        _check_last(values, self._count)
        flat = values.reshape(-1, values.shape[-1])
        best = _indexes(flat, self._count)
        if flat.dtype.kind == "f" and flat.size and np.isnan(flat.max()):
            raise RowsFailed(_faults(np.isnan(flat), values, "the model answered NaN"))
        return best.reshape(values.shape[:-1] if self._count == 1 else (*values.shape[:-1], self._count))


class Highest:
    """Takes the highest values of the last dimension, the highest one first."""

    def __init__(self, count: int) -> None:
        self._best = Best(count)

    def gives(self, spec: TensorSpec) -> TensorSpec:
        return replace(self._best.gives(spec), datatype=spec.datatype)

    def make(self, values: Array, feeds: Feeds) -> Array:
        best = self._best.make(values, feeds)
        flat = values.reshape(-1, values.shape[-1])
        highest: Array = np.take_along_axis(flat, best.reshape(len(flat), -1), axis=1)
        return highest.reshape(best.shape)


class Names:
    """Gives each whole number its name."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._name = names.get

    def gives(self, spec: TensorSpec) -> TensorSpec:
        if spec.dtype.kind not in "iub":
            raise Unfit(f"{spec} has no whole numbers, and names belong to such")
        return replace(spec, datatype="BYTES")

    def make(self, values: Array, feeds: Feeds) -> Array:  # noqa: ARG002
        names = [*map(self._name, values.ravel().tolist())]
        if None in names:
            nameless = np.array([name is None for name in names])
            raise RowsFailed(_faults(nameless, values, "the model answered a number that has no name"))
        return np.array(names, object).reshape(values.shape)


def all_rows(values: Array, why: str) -> dict[int, RowFault]:
    """The fault of all rows."""
    return dict.fromkeys(range(len(values)), RowFault(Code.INTERNAL, why))


def _faults(are_wrong: Array, values: Array, why: str) -> dict[int, RowFault]:
    """The fault of each row that has a wrong element."""
    rows = np.flatnonzero(are_wrong.reshape(len(values), -1).any(axis=1))
    return dict.fromkeys(rows.tolist(), RowFault(Code.INTERNAL, why))


def _indexes(flat: Array, count: int) -> Array:
    """The indexes (rows, count) of the highest values of each row; NaN is the highest."""
    if count == 1:
        one: Array = flat.argmax(axis=1)[:, None]
        return one
    if count <= _FEW and flat.dtype.kind == "f":
        rest, rows = flat.copy(), np.arange(len(flat))
        found = np.empty((len(flat), count), np.int64)
        for at in range(count):
            found[:, at] = rest.argmax(axis=1)
            if (rest[rows, found[:, at]] == -math.inf).any():  # it may have been found before
                break
            rest[rows, found[:, at]] = -math.inf
        else:
            return found
    backwards = np.argsort(flat[:, ::-1], axis=1, kind="stable")
    highest: Array = flat.shape[1] - 1 - backwards[:, : -count - 1 : -1]
    return highest


def last(spec: TensorSpec) -> int | None:
    """The last dimension; None if it is dynamic. Raises `Unfit` for a tensor that has none."""
    if not spec.dims:
        raise Unfit(f"{spec} has one element a row, and several are needed")
    return spec.dims[-1]


def _check_last(values: Array, least: int) -> None:
    if values.shape[-1] < least:
        raise RowsFailed(all_rows(values, f"shape {values.shape} came out, and {least} elements are needed"))


def _without_last(spec: TensorSpec) -> TensorSpec:
    return replace(spec, dims=spec.dims[:-1], symbols=spec.symbols[:-1])


def floats(spec: TensorSpec) -> TensorSpec:
    if not spec.is_float:
        raise Unfit(f"{spec} has no floating-point numbers, which are needed")
    return spec

"""Rows that a model is run with before requests come: all alike, or given by the operator.

Both make batches of any number of rows, with axes of the lengths asked for. Pure; `WarmUp` finds which of them run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worker.core.records import Array, Value
from worker.core.tensors.axes import blank_lengths
from worker.core.tensors.buckets import Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

Feeds = Mapping[str, Array]
Lengths = Mapping[Spot, int]


class UniformRows(NamedTuple):
    """Made of one number, digits where texts are wanted; `dimension` is the size of dynamic dimensions."""

    dimension: int
    value: int

    def batch(self, signature: Signature, rows: int, lengths: Lengths) -> Feeds:
        """Padded axes are as long as in their first buckets."""
        lengths = {**blank_lengths(signature.axes), **lengths}
        return {
            spec.name: self._input(spec, rows, [lengths.get(Spot(at, n)) for n in range(len(spec.dims))])
            for at, spec in enumerate(signature.inputs)
        }

    def of(self, value: int) -> UniformRows:
        """The same of this value, where it may have any."""
        return self._replace(value=value)

    def _input(self, spec: TensorSpec, rows: int, lengths: Sequence[int | None]) -> Array:
        """Strings are digits, which a model that parses numbers takes too; inputs with a default have it."""
        shape = (rows, *(n or (self.dimension if d is None else d) for n, d in zip(lengths, spec.dims, strict=True)))
        if spec.default is not None:
            return np.full(shape, spec.default, spec.dtype)
        return np.full(shape, str(self.value) if spec.is_text else self.value, spec.dtype)


class ExampleRows(NamedTuple):
    """The operator's rows: an array of shape (rows, *dims) for each input, repeated where more rows are wanted."""

    arrays: Feeds

    @property
    def rows(self) -> int:
        return len(next(iter(self.arrays.values())))

    def each(self) -> Iterator[ExampleRows]:
        """Row by row."""
        for at in range(self.rows):
            yield ExampleRows({name: array[at : at + 1] for name, array in self.arrays.items()})

    def batch(self, signature: Signature, rows: int, lengths: Lengths) -> Feeds:
        """Padded axes are as long as in the buckets that hold these rows."""
        lengths = {**self._in_buckets(signature), **lengths}
        pads = {spot: pad for axis in signature.axes for spot, pad in axis.inputs.items()}
        feeds = {name: array[np.arange(rows) % self.rows] for name, array in self.arrays.items()}
        for (tensor, dimension), length in lengths.items():
            name = signature.inputs[tensor].name
            feeds[name] = _as_long(feeds[name], dimension + 1, length, pads.get(Spot(tensor, dimension)))
        return feeds

    def of(self, value: int) -> ExampleRows:  # noqa: ARG002 - the values are the operator's
        return self

    def _in_buckets(self, signature: Signature) -> Lengths:
        shapes = tuple(self.arrays[spec.name].shape[1:] for spec in signature.inputs)
        bucket = signature.buckets.padded(shapes)
        return {spot: bucket[spot.tensor][spot.dimension] for axis in signature.axes for spot in axis.inputs}


WarmUpRows = UniformRows | ExampleRows


def _as_long(array: Array, axis: int, length: int, pad: Value | None) -> Array:
    """Cut off, or padded as requests are; along an axis that is not padded its elements are repeated."""
    has = array.shape[axis]
    if length <= has or pad is None:
        taken: Array = np.take(array, np.arange(length) % has, axis)
        return taken
    shape = list(array.shape)
    shape[axis] = length - has
    return np.concatenate([array, np.full(shape, pad, array.dtype)], axis=axis)

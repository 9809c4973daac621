"""Pads requests of different lengths, so that they may share a batch.

An axis that the operator names is padded to the smallest of its boundaries that holds the request: a bucket. All inputs
that share the axis are padded together, each with its own value. Outputs that have the axis are cut back to the
request's own length. Without such an axis requests share a batch only if their shapes are equal.

    a a a · ·        rows of requests a and b, padded to a bucket of 5;
    b b b b ·        outputs that have the axis are cut back: 3 of a, 4 of b

Loading the model decides which inputs and outputs have an axis (`axes.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from worker.core.chunk import Batch, Chunk, Shapes, columns_of
from worker.core.failures import Code, Reject, listed
from worker.core.records import Array, Tensor, Value
from worker.core.tensors.specs import TensorSpec


class WantedAxis(NamedTuple):
    """An axis as the operator names it: `axis` counts the batch axis as 0; `shared_by` has other inputs and their pads.

    `pad` None: the blank value of the input's datatype.
    """

    input: str
    axis: int
    boundaries: tuple[int, ...]
    pad: Value | None = None
    shared_by: Mapping[str, Value] = {}


class Spot(NamedTuple):
    """The position of an axis: which input or output, and which of its dimensions after the batch axis."""

    tensor: int
    dimension: int


@dataclass(frozen=True)
class Axis:
    """One padded axis: its spots in the `inputs`, each with its padding, and its spots in the `outputs`."""

    name: str  # for messages: `input input_ids axis 1`
    boundaries: tuple[int, ...]  # ascending
    inputs: Mapping[Spot, Value]
    outputs: Sequence[Spot] = field(default=())

    def length(self, shapes: Shapes) -> int:
        """The length of this axis in these shapes. Raises `Reject` if inputs disagree, or if no bucket holds it."""
        lengths = {shapes[tensor][dimension] for tensor, dimension in self.inputs}
        if len(lengths) > 1:
            said = listed(sorted(lengths))
            raise Reject(f"{self.name}: the inputs that share this axis must be equally long, got {said}")
        length = lengths.pop()
        if length > self.boundaries[-1]:
            raise Reject(f"{self.name}: {length} long, at most {self.boundaries[-1]} is taken", Code.RESOURCE_EXHAUSTED)
        return length

    def padded(self, length: int) -> int:
        """The bucket of this length."""
        return self.boundaries[bisect_left(self.boundaries, length)]


@dataclass(frozen=True)
class Buckets:
    """The padded axes of one model, and the bytes of one element of each input.

    Without an axis every shape is a bucket of its own.
    """

    axes: Sequence[Axis] = ()
    element_bytes: Sequence[int] = ()

    def check(self, shapes: Shapes) -> None:
        """Raises `Reject` for a request that no bucket takes."""
        for axis in self.axes:
            axis.length(shapes)

    def padded(self, shapes: Shapes) -> Shapes:
        """The shapes that requests of these shapes have in a batch. They must have passed `check`."""
        if not self.axes:
            return shapes
        dimensions = [list(dims) for dims in shapes]
        for axis in self.axes:
            length = axis.padded(axis.length(shapes))
            for tensor, dimension in axis.inputs:
                dimensions[tensor][dimension] = length
        return tuple(map(tuple, dimensions))

    def row_bytes(self, shapes: Shapes) -> int:
        """The bytes of one row of these shapes."""
        return sum(prod(dims) * size for dims, size in zip(shapes, self.element_bytes, strict=True))

    def lengths(self, shapes: Shapes) -> tuple[int, ...]:
        """The length of each padded axis in these shapes."""
        return tuple(axis.length(shapes) for axis in self.axes)

    def label(self, shapes: Shapes) -> str:
        """The bucket of padded shapes, for people: `128`, or `64x128` with two axes."""
        return "x".join(map(str, self.lengths(shapes)))

    @cached_property
    def cuts_outputs(self) -> bool:
        """True if an output has a padded axis."""
        return any(axis.outputs for axis in self.axes)

    @cached_property
    def pads(self) -> Mapping[int, Value]:
        """The padding of each padded input. An input with two padded axes has the padding of the first axis."""
        pads: dict[int, Value] = {}
        for axis in self.axes:
            for (tensor, _), pad in axis.inputs.items():
                pads.setdefault(tensor, pad)
        return pads

    def joined(
        self, inputs: Sequence[TensorSpec], chunks: Sequence[Chunk], rows: int, shapes: Shapes
    ) -> Mapping[str, Array]:
        """One array of shape (rows, *dims) per input, with the dims of `shapes`. Elements of no record are padding."""
        feeds: dict[str, Array] = {}
        rows_each = [count for chunk in chunks for count in chunk.rows]
        by_input = zip(*[own for chunk in chunks for own in chunk.shapes], strict=True)
        masks: dict[int, tuple[tuple[tuple[int, ...], ...], Array]] = {}  # by padded length, with the records' lengths
        for at, (spec, tensors, dims) in enumerate(zip(inputs, columns_of(chunks), by_input, strict=True)):
            array: Array = np.empty((rows, *shapes[at]), spec.dtype)
            array.fill(self.pads.get(at, 0))  # 1.4 µs, where `np.full` takes 4.7
            if len(shapes[at]) == 1 and len(tensors) > FEW:
                (length,) = shapes[at]
                if length not in masks or masks[length][0] != dims:  # the inputs of a text are equally long
                    masks[length] = dims, _mask(dims, rows_each, length)
                array[masks[length][1]] = spec.joined(tensors)
            else:
                _fill(spec, array, tensors, rows_each, dims)
            feeds[spec.name] = array
        return feeds

    def own_parts(self, outputs: Sequence[Array], shapes: Shapes, start: int, stop: int) -> tuple[Array, ...]:
        """Rows `start` to `stop` of each output, cut back to the lengths of a request of these shapes. Views."""
        parts = [output[start:stop] for output in outputs]
        for axis in self.axes:
            length = axis.length(shapes)
            for tensor, dimension in axis.outputs:
                parts[tensor] = parts[tensor][(slice(None),) * (dimension + 1) + (slice(length),)]
        return tuple(parts)

    def misfit(self, outputs: Sequence[Array], shapes: Shapes) -> str | None:
        """The fault in the lengths of the outputs of a batch of these shapes, in words; None if there is none."""
        for axis in self.axes:
            length = axis.length(shapes)
            for tensor, dimension in axis.outputs:
                if outputs[tensor].shape[dimension + 1 : dimension + 2] != (length,):
                    return (
                        f"{axis.name} is {length} long in the batch, output {tensor} has shape {outputs[tensor].shape}"
                    )
        return None


NO_BUCKETS = Buckets()
FEW = 3  # tensors that are copied one by one: a mask pays for more


def _mask(dims: Sequence[tuple[int, ...]], rows: Sequence[int], length: int) -> Array:
    """Which elements of an array of so many columns are data; each row of a record has its `dims`.

    64 texts of 4 to 256 tokens take 20 µs to pad so, and 90 when each is copied by itself; two texts take longer so.
    """
    lengths = np.array(dims)
    return np.arange(length) < (lengths if len(dims) == sum(rows) else np.repeat(lengths, rows, axis=0))


def _fill(
    spec: TensorSpec,
    array: Array,
    tensors: Sequence[Tensor],
    rows: Sequence[int],
    dims: Sequence[tuple[int, ...]],
) -> None:
    stop = 0
    for tensor, count, own in zip(tensors, rows, dims, strict=True):
        start, stop = stop, stop + count
        array[(slice(start, stop), *map(slice, own))] = spec.array(tensor, (count, *own))


class Filled(NamedTuple):
    """How many elements of a batch's largest input are data of requests, and how many are padding."""

    data: int
    padding: int


def filled(batch: Batch) -> Filled:
    """How much of a batch is padding."""
    sizes = [prod(dims) for dims in batch.shapes]
    largest = sizes.index(max(sizes))
    data = sum(
        rows * prod(shapes[largest])
        for chunk in batch.chunks
        for rows, shapes in zip(chunk.rows, chunk.shapes, strict=True)
    )
    return Filled(data, batch.rows * sizes[largest] - data)


def tokens(shapes: Shapes) -> int:
    """The cost of one row of these shapes: the elements of its largest input."""
    return max(map(prod, shapes))

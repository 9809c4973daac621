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
from worker.core.tensors.many_inputs import alike, joined_at_once
from worker.core.tensors.room import ALIGNMENT, Room, Rooms, own_room
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
    """The inputs of one model and their padded axes. Without an axis every shape is a bucket of its own."""

    axes: Sequence[Axis] = ()
    inputs: Sequence[TensorSpec] = ()

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
        if self._fixed_row_bytes is not None:
            return self._fixed_row_bytes
        return sum(prod(dims) * spec.element_bytes for dims, spec in zip(shapes, self.inputs, strict=True))

    @cached_property
    def _fixed_row_bytes(self) -> int | None:
        """The bytes of one row, where no dimension is dynamic. A table of 500 columns takes 0.1 ms to count."""
        sizes = [prod([dim or 0 for dim in spec.dims]) * spec.element_bytes for spec in self.inputs]
        return None if any(None in spec.dims for spec in self.inputs) else sum(sizes)

    def label(self, shapes: Shapes) -> str:
        """The bucket of padded shapes, for people: `128`, or `64x128` with two axes."""
        return "x".join([str(axis.length(shapes)) for axis in self.axes])

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

    @cached_property
    def _ends(self) -> Mapping[int, memoryview]:
        """The longest padding of each input with one dimension of numbers; equal ones of one axis are one object."""
        ends: dict[int, memoryview] = {}
        for axis in self.axes:
            made: dict[bytes, memoryview] = {}
            for (tensor, _), pad in axis.inputs.items():
                spec = self.inputs[tensor]
                if len(spec.dims) == 1 and not spec.is_text:
                    longest = np.full(axis.boundaries[-1], pad, spec.dtype).tobytes()
                    ends[tensor] = made.setdefault(longest, memoryview(longest))
        return ends

    def joined(
        self, chunks: Sequence[Chunk], rows: int, shapes: Shapes, rooms: Rooms = own_room
    ) -> Mapping[str, Array]:
        """One array of shape (rows, *dims) per input, with the dims of `shapes`. Elements of no record are padding.

        Rows of one dimension are joined as bytes, with their padding between them: three inputs of 64 texts of 4 to 256
        tokens take 29 µs; with a mask 202, and 234 if each is copied by itself (2026-11).
        """
        room = rooms(rows * self.row_bytes(shapes) + len(shapes) * ALIGNMENT)
        if self._alike and not self.axes:
            return joined_at_once(self.inputs, self._alike, chunks, rows, shapes, room)
        columns = zip(self.inputs, columns_of(chunks), shapes, strict=True)
        if not self.axes:
            return {spec.name: spec.joined(tensors, room).reshape(rows, *dims) for spec, tensors, dims in columns}
        own = [each for chunk in chunks for each in chunk.shapes]
        pieces: list[Tensor] = [b""] * (2 * len(own))
        padded_by: memoryview | None = None  # what stands in every second piece
        feeds: dict[str, Array] = {}
        for at, (spec, tensors, dims) in enumerate(columns):
            if at not in self.pads:
                array = spec.joined(tensors, room).reshape(rows, *dims)
            elif len(own) < rows or at not in self._ends:
                array = _filled(spec, self.pads[at], tensors, chunks, dims, [each[at] for each in own], room)
            else:
                end, size = self._ends[at], spec.element_bytes
                if padded_by is not end:  # all inputs of an axis are equally long
                    padded_by = end
                    pieces[1::2] = [end[: (dims[0] - each[at][0]) * size] for each in own]
                pieces[::2] = tensors
                array = spec.joined(pieces, room).reshape(rows, *dims)
            feeds[spec.name] = array
        return feeds

    @cached_property
    def _alike(self) -> Sequence[Sequence[int]]:
        return alike(self.inputs)

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


def _filled(
    spec: TensorSpec,
    pad: Value,
    tensors: Sequence[Tensor],
    chunks: Sequence[Chunk],
    dims: tuple[int, ...],
    own_dims: Sequence[tuple[int, ...]],
    room: Room,
) -> Array:
    """Padded rows of `dims`, with the tensors of records whose rows have their own dims."""
    rows = [count for chunk in chunks for count in chunk.rows]
    shape = (sum(rows), *dims)
    array: Array = np.empty(shape, object) if spec.is_text else room.empty(shape, spec.dtype)
    array.fill(pad)  # 1.4 µs, where `np.full` takes 4.7
    stop = 0
    for tensor, count, own in zip(tensors, rows, own_dims, strict=True):
        start, stop = stop, stop + count
        array[(slice(start, stop), *map(slice, own))] = spec.array(tensor, (count, *own))
    return array


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

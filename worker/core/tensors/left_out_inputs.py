"""Makes the inputs that a request leaves out: their lengths and their elements.

| dimension of the input left out | its length |
|---|---|
| fixed in the model's file | the fixed length |
| dynamic, with a name there | as in the first input given that has an axis of that name, in the model's order |
| dynamic, without a name | as this axis in the first input given that has as many dimensions |

Every element is the input's default. Inputs are filled in when the request is judged, so code that batches, pads or
stacks it sees a whole request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from worker.core.failures import Code, Reject, listed
from worker.core.records import Tensor
from worker.core.tensors.specs import TEXT_BYTES, NamedTensor, TensorSpec

# The most bytes filled in for one input; a batch holds as much by default. A short request can leave out long rows: it
# sends a few bytes for each of 65,536 rows of 600 KB.
MAX_FILLED_BYTES = 16 * 1024 * 1024


class InputAxis(NamedTuple):
    """One axis of an input, counted with the batch axis."""

    input: str
    number: int


@dataclass(frozen=True, slots=True)
class Filling:
    """Makes one input. `lengths` holds the length of each of its dimensions, or the axes that tell the length.

    All elements are equal, so requests share the bytes: one poll may bring hundreds that leave out megabytes.
    """

    spec: TensorSpec
    lengths: tuple[int | tuple[InputAxis, ...], ...]
    _made: dict[int, bytes] = field(default_factory=dict, compare=False, repr=False)  # by size, within MAX_FILLED_BYTES

    def make(self, rows: int, given: Mapping[str, NamedTensor]) -> tuple[tuple[int, ...], Tensor]:
        """Its shape, (rows, *dims), and its elements. Raises `Reject` if it is too large, or if a length is unknown."""
        shape = (rows, *[self._length(at, given) for at in range(len(self.lengths))])
        elements = math.prod(shape)
        size = elements * (TEXT_BYTES if self.spec.is_text else self.spec.dtype.itemsize)
        if size > MAX_FILLED_BYTES:
            raise Reject(
                f"input {self.spec.name} was left out and would take {size} bytes, at most {MAX_FILLED_BYTES} are "
                "filled in: send fewer rows at once, or give it",
                Code.RESOURCE_EXHAUSTED,
            )
        return shape, self.tensor(elements)

    def tensor(self, elements: int) -> Tensor:
        """So many elements, which `make` has allowed."""
        if self.spec.is_text:
            return [str(self.spec.default)] * elements
        size = elements * self.spec.dtype.itemsize
        if size not in self._made:
            if sum(self._made) + size > MAX_FILLED_BYTES:
                self._made.clear()
            self._made[size] = np.array(self.spec.default, self.spec.dtype).tobytes() * elements
        return self._made[size]

    def _length(self, at: int, given: Mapping[str, NamedTensor]) -> int:
        known = self.lengths[at]
        if isinstance(known, int):
            return known
        for name, number in known:
            if name in given:
                return given[name].shape[number]
        others = f", or {listed(dict.fromkeys(name for name, _ in known))}" if known else ""
        raise Reject(
            f"input {self.spec.name} was left out, and nothing says how long its axis {at + 1} is: give it{others}"
        )


def filling_of(spec: TensorSpec, inputs: Sequence[TensorSpec]) -> Filling:
    """How to make this input from the model's others. If no axis is found for a dimension, its length is unknown."""
    others = [other for other in inputs if other.name != spec.name]
    return Filling(spec, tuple(_axes(spec, at, others) if dim is None else dim for at, dim in enumerate(spec.dims)))


def _axes(spec: TensorSpec, at: int, others: Sequence[TensorSpec]) -> tuple[InputAxis, ...]:
    symbol = spec.symbol(at)
    if symbol is None:
        return tuple(InputAxis(other.name, at + 1) for other in others if len(other.dims) == len(spec.dims))
    return tuple(InputAxis(other.name, other.symbols.index(symbol) + 1) for other in others if symbol in other.symbols)

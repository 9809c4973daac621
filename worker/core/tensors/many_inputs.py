"""Batches of a model with inputs that are alike, as models of tables have: an input for each column.

Such inputs are copied by one call, and lie one after the other. A call for each takes 6 µs of CPU, and so do its place
in the memory that the host shares and its view there: 5 ms for 500 inputs, and 0.4 ms at once (2026-11).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from worker.core.block import Block
from worker.core.chunk import Chunk, Shapes, columns_of
from worker.core.records import Array, Tensor
from worker.core.tensors.room import Room
from worker.core.tensors.specs import TensorSpec


class WideFeeds(dict[str, Array]):
    """The feeds of a batch, in the signature's order. `wholes` has them, too: arrays of shape (inputs, rows, *dims) by
    the names of the inputs whose feeds are its rows, and each other feed by its name.
    """

    def __init__(self, feeds: Mapping[str, Array], wholes: Mapping[str | tuple[str, ...], Array]) -> None:
        super().__init__(feeds)
        self.wholes = wholes


def alike(inputs: Sequence[TensorSpec]) -> Sequence[Sequence[int]]:
    """The inputs of one datatype and the same fixed dimensions, by their indexes, where there are several."""
    found = defaultdict[object, list[int]](list)
    for at, spec in enumerate(inputs):
        if None not in spec.dims:
            found[spec.datatype, spec.dims].append(at)
    return [some for some in found.values() if len(some) > 1]


def joined_at_once(
    inputs: Sequence[TensorSpec],
    alike: Sequence[Sequence[int]],
    chunks: Sequence[Chunk],
    rows: int,
    shapes: Shapes,
    room: Room,
) -> WideFeeds:
    """One array of shape (rows, *dims) per input, with the dims of `shapes`. No input is padded."""
    made: dict[int, Array] = {}
    wholes: dict[str | tuple[str, ...], Array] = {}
    for some in alike:
        spec, columns = inputs[some[0]], [chunk.tensors[at] for at in some for chunk in chunks]
        elements = _texts(columns) if spec.is_text else _numbers(spec, columns, room)
        whole = elements.reshape(len(some), rows, *shapes[some[0]])
        wholes[tuple([inputs[at].name for at in some])] = whole
        made.update(zip(some, whole, strict=True))
    others = [at for at in range(len(inputs)) if at not in made]
    for at, tensors in zip(others, columns_of(chunks, others), strict=True):
        wholes[inputs[at].name] = made[at] = inputs[at].joined(tensors, room).reshape(rows, *shapes[at])
    return WideFeeds({spec.name: made[at] for at, spec in enumerate(inputs)}, wholes)


def _numbers(spec: TensorSpec, columns: Sequence[Sequence[Tensor]], room: Room) -> Array:
    pieces: list[Any] = []
    for tensors in columns:
        pieces += (tensors.rows,) if isinstance(tensors, Block) else tensors
    return np.frombuffer(room.join(pieces), spec.dtype)


def _texts(columns: Sequence[Sequence[Tensor]]) -> Array:
    blocks = [tensors.rows for tensors in columns if isinstance(tensors, Block)]
    if len(blocks) == len(columns):
        return np.concatenate(blocks, axis=None)
    return np.array(list(chain.from_iterable(chain.from_iterable(columns))), object)

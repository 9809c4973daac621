"""Batches of a model with many inputs that are alike, as models of tables have: an input for each column.

Such inputs are copied by one call, and lie one after the other. A call for each takes 6 µs of CPU, and so do its place
in the memory that the host shares and its view there: 5 ms for 500 inputs, and 0.4 ms at once (2026-11).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from worker.core.block import Block
from worker.core.chunk import Chunk, Shapes, columns_of
from worker.core.records import Array
from worker.core.tensors.room import Room
from worker.core.tensors.specs import TensorSpec

MANY = 16


class WideFeeds(dict[str, Array]):
    """The feeds of a batch, in the signature's order. `wholes`: arrays of shape (inputs, rows, *dims), by the names of
    the inputs whose feeds are its rows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wholes: dict[tuple[str, ...], Array] = {}


def alike(inputs: Sequence[TensorSpec]) -> Sequence[Sequence[int]]:
    """The inputs of numbers, of one datatype and the same fixed dimensions, by their indexes, where there are many."""
    found = defaultdict[object, list[int]](list)
    for at, spec in enumerate(inputs):
        if spec.row_bytes is not None:
            found[spec.datatype, spec.dims].append(at)
    return [some for some in found.values() if len(some) >= MANY]


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
    feeds = WideFeeds()
    for some in alike:
        pieces: list[Any] = []
        for at in some:
            for chunk in chunks:
                tensors = chunk.tensors[at]
                pieces += (tensors.rows,) if isinstance(tensors, Block) else tensors
        whole = np.frombuffer(room.join(pieces), inputs[some[0]].dtype).reshape(len(some), rows, *shapes[some[0]])
        feeds.wholes[tuple([inputs[at].name for at in some])] = whole
        made.update(zip(some, whole, strict=True))
    others = [at for at in range(len(inputs)) if at not in made]
    for at, tensors in zip(others, columns_of(chunks, others), strict=True):
        made[at] = inputs[at].joined(tensors, room).reshape(rows, *shapes[at])
    feeds.update((spec.name, made[at]) for at, spec in enumerate(inputs))
    return feeds

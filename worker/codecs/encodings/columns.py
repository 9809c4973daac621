"""The outputs of n records in columns, and the values joined from them: one call for each step, not for each record.

A value is a *frame* with a content for each output between its pieces. The writers make a frame of the outputs'
headings, and remember it, because most answers of a model have equal headings:

    opening · id · piece · content · piece · content · … · last piece
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple

import numpy as np
import orjson

from worker.codecs.encodings.elements import to_bytes
from worker.core.chunk import Chunk
from worker.core.records import Array, ModelKey
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

# An output's name, datatype and shape, and its number of bytes; None for an output that is text in JSON.
Heading = tuple[str, str, tuple[int, ...], int | None]
Headings = tuple[Heading, ...]
# The pieces of one value: the opening, one before each content, and the last one.
Frame = tuple[bytes, ...]

# The most bytes of an output that are copied as one and cut: larger parts are as quickly copied one by one.
_MOST_COPIED = 256 * 1024
# The most numbers that are written as one JSON text and cut. The text, of about 1 MiB, is twice in memory then.
MOST_WRITTEN = 64 * 1024


class Column:
    """One output of n records: one part of any shape for each. An output that is not `binary` is text in JSON."""

    __slots__ = ("_parts", "_raws", "binary", "spec")

    def __init__(self, spec: TensorSpec, binary: bool, parts: Sequence[Array]) -> None:  # noqa: FBT001  # as in `Wanted`
        self.spec, self.binary, self._parts = spec, binary, parts
        self._raws: Sequence[bytes] | None = None

    @property
    def parts(self) -> Iterable[Array]:
        return self._parts

    def headings(self) -> Heading | list[Heading]:
        """The heading of each part; one heading if all are known to be equal."""
        name, datatype = self.spec.name, self.spec.datatype
        if not self.binary:
            return [(name, datatype, part.shape, None) for part in self.parts]
        return [(name, datatype, part.shape, len(raw)) for part, raw in zip(self.parts, self.raws(), strict=True)]

    def raws(self) -> Sequence[bytes]:
        """The bytes of each part."""
        if self._raws is None:
            self._raws = list(map(to_bytes, self.parts))
        return self._raws

    def texts(self) -> Sequence[bytes]:
        """The elements of each part in JSON, without the brackets around them."""
        if self.spec.is_text:
            return [orjson.dumps(part.reshape(-1).tolist())[1:-1] for part in self.parts]
        return [in_json(part.reshape(-1))[1:-1] for part in self.parts]

    def most_elements(self) -> int:
        """The number of elements of the largest part."""
        return max([part.size for part in self.parts])

    def is_finite(self) -> bool:
        return not self.spec.is_float or all(bool(np.isfinite(part).all()) for part in self.parts)


class EvenColumn(Column):
    """One output of numbers whose `count` parts have one shape and follow one another in the array `whole`.

    `parts` is an array of shape (count, rows of a part, *dims).
    """

    __slots__ = ("count", "whole")

    def __init__(self, spec: TensorSpec, binary: bool, whole: Array, count: int) -> None:  # noqa: FBT001  # as in `Wanted`
        self.spec, self.binary, self.whole, self.count = spec, binary, whole, count
        self._raws = None

    @property
    def parts(self) -> Array:
        whole, count = self.whole, self.count
        parts: Array = whole.reshape(count, len(whole) // count, *whole.shape[1:])
        return parts

    def headings(self) -> Heading | list[Heading]:
        whole, count, spec = self.whole, self.count, self.spec
        shape = whole.shape if count == 1 else (len(whole) // count, *whole.shape[1:])
        return spec.name, spec.datatype, shape, whole.nbytes // count if self.binary else None

    def raws(self) -> Sequence[bytes]:
        whole, count = self.whole, self.count
        if count == 1:
            return [whole.tobytes()]
        if not 0 < whole.nbytes <= _MOST_COPIED:
            return [part.tobytes() for part in self.parts]
        raw, size = whole.tobytes(), whole.nbytes // count
        return [raw[at : at + size] for at in range(0, len(raw), size)]

    def texts(self) -> Sequence[bytes]:
        whole = self.whole
        if whole.size > MOST_WRITTEN:
            return super().texts()
        # To write 64 parts of 16 numbers at once costs 0.7 µs a part, one by one 0.95 (measured 2026-11).
        return in_json(whole.reshape(self.count, -1))[2:-2].split(b"],[")

    def most_elements(self) -> int:
        return self.whole.size // self.count

    def is_finite(self) -> bool:
        return not self.spec.is_float or bool(np.isfinite(self.whole).all())


class EvenTexts(EvenColumn):
    """One output of texts, likewise. Its parts are written one by one."""

    __slots__ = ()
    headings, raws, texts = Column.headings, Column.raws, Column.texts


def in_json(array: Array) -> bytes:
    """The array as orjson writes it from its own memory, with the fewest digits for each: 0.1, not 0.10000000149."""
    return orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)


def column_of(spec: TensorSpec, array: Array, *, binary: bool) -> Column:
    """The column of one record, whose part is the whole array."""
    return (EvenTexts if spec.is_text else EvenColumn)(spec, binary, array, 1)


# Columns of a batch's outputs


class Cut(NamedTuple):
    """A padded axis of an output, `dimension`; the batch axis is 0. Its length is dimension `of` of input `input`."""

    dimension: int
    input: int
    of: int


class Wanted(NamedTuple):
    """An output that a requester wants: its index, its form, and its padded axes."""

    at: int
    spec: TensorSpec
    binary: bool
    cuts: Sequence[Cut]

    @classmethod
    def of(cls, signature: Signature, at: int, *, binary: bool) -> Wanted:
        """The output of this index."""
        cuts = [
            Cut(spot.dimension + 1, *next(iter(axis.inputs)))
            for axis in signature.buckets.axes
            for spot in axis.outputs
            if spot.tensor == at
        ]
        return cls(at, signature.outputs[at], binary, cuts)


def output_columns(wanted: Iterable[Wanted], chunk: Chunk, outputs: Sequence[Array], start: int) -> list[Column]:
    """The wanted outputs of a chunk whose rows begin at row `start` of a batch's outputs."""
    rows, each = chunk.rows, chunk.rows[0]
    count = len(rows)
    stop = start + each * count
    is_even = rows.count(each) == count
    return [
        (EvenTexts if spec.is_text else EvenColumn)(spec, binary, outputs[at][start:stop], count)
        if is_even and not cuts
        else Column(spec, binary, _parts(outputs[at], cuts, chunk, start))
        for at, spec, binary, cuts in wanted
    ]


def _parts(output: Array, cuts: Sequence[Cut], chunk: Chunk, start: int) -> Sequence[Array]:
    """Each record's own rows, without their padding. Views."""
    parts = [output[low:high] for low, high in pairwise(accumulate(chunk.rows, initial=start))]
    for dimension, tensor, of in cuts:
        before = (slice(None),) * dimension
        parts = [part[(*before, slice(shapes[tensor][of]))] for part, shapes in zip(parts, chunk.shapes, strict=True)]
    return parts


# Values


def values_of(
    columns: Sequence[Column],
    frame: Callable[[ModelKey | None, Headings], Frame],
    model: ModelKey | None,
    ids: Sequence[bytes] | None,
    contents: Sequence[Sequence[bytes]],
    count: int,
) -> list[bytes]:
    """`count` values: each is the frame of its outputs' headings, with its id and its contents."""
    headings = [column.headings() for column in columns]
    pieces: list[Iterable[bytes]]
    if [heading for heading in headings if type(heading) is list]:
        each = zip(*[heading if isinstance(heading, list) else repeat(heading) for heading in headings], strict=False)
        pieces = list(zip(*[frame(model, own) for own in each], strict=True))
    else:
        shared = frame(model, tuple(headings))  # type: ignore[arg-type]  # there is no list
        if len(contents) == 1:
            # The commonest case. For one record alone this costs 1 µs, and the way below 4 (measured 2026-11).
            opening, before, last = shared
            if ids is None:
                first = opening + before
                return [b"".join((first, content, last)) for content in contents[0]]
            both = zip(ids, contents[0], strict=True)
            return [b"".join((opening, own, before, content, last)) for own, content in both]
        pieces = [repeat(piece, count) for piece in shared]
    rows = [pieces[0], *([] if ids is None else [ids]), pieces[1]]
    for content, piece in zip(contents, pieces[2:], strict=True):
        rows += content, piece
    return list(map(b"".join, zip(*rows, strict=True)))

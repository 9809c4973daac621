"""Knows protobuf requests by their bytes: compares a value with one that was parsed before, instead of parsing it.

    value    │ model_name, inputs, shapes … │ tag, length │ tensor │ tag, length │ tensor │
    layout   ╰──────────── fixed ───────────┴─── fixed ───╯ slice  ╰─── fixed ───╯ slice  ╯

A message is a sequence of fields, each of which begins with its number and length. If two values are equally long and
equal outside of their tensors, every parser finds the same fields at the same places, and the bytes of a tensor mean
nothing to it. So the second value says what the first one said, with tensors of its own. The id of a request is a slice
too, which must be UTF-8. So are contents of floats, which are written as they are in memory. A layout holds only the
fixed bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from worker.codecs.encodings.oip import Known, Statement
from worker.core.records import Tensor

# The numbers of fields: of a request, of an input, and of its contents.
_ID_FIELD, _INPUT_FIELD, RAW_FIELD = 3, 5, 7
_CONTENTS_FIELD, _FLOAT_FIELDS = 5, (6, 7)
_BYTES = 2  # the type of a field of bytes

# How many layouts of one length are compared with a value; one more, and all of that length are forgotten.
_MOST_ALIKE = 4
# A message with more fields is parsed each time: half a million texts in its contents would take 0.7 s to look at.
_MOST_FIELDS = 1000


class Layout(NamedTuple):
    """The fixed bytes of values of one length, and what values with these bytes say.

    `tensors` gives the tensors of a value, in the order of the model's inputs if `is_plain`, else of the claims.
    """

    fixed_parts: Callable[[bytes], Any]
    fixed: Any
    tensors: Callable[[bytes], tuple[bytes, ...]]
    id: slice | None
    statement: Statement
    is_plain: bool


class Layouts:
    """The layouts that were met, by the length of their values."""

    def __init__(self) -> None:
        self._known: Known[int, list[Layout]] = Known()

    def find(self, value: bytes) -> Layout | None:
        """The layout of this value, if one like it was met."""
        for layout in self._known.get(len(value), ()):
            if layout[0](value) == layout[1]:
                return layout
        return None

    def learn(self, value: bytes, statement: Statement, tensors: Sequence[Tensor], raw: Sequence[bytes]) -> None:
        """Learn the layout of a value with these tensors, if they are where we find them: `raw`, or as contents."""
        met = fields(value, slice(0, len(value)), _MOST_FIELDS)
        claims, places = statement.claims, statement.places()
        if raw:
            found = [at for number, at in met if number == RAW_FIELD]
            is_so = [value[at] for at in found] == list(raw)
        else:
            found = [numbers for number, at in met if number == _INPUT_FIELD for numbers in _floats(value, at)]
            is_so = places is not None and all(spec.is_float for spec, _ in claims) and len(found) == len(claims)
        in_order = [found[at] for at in places] if is_so and places is not None else found
        ids = [at for number, at in met if number == _ID_FIELD]
        if not is_so or len(ids) > 1 or (places is not None and [value[at] for at in in_order] != list(tensors)):
            return
        slices = sorted([*found, *ids], key=lambda at: at.start)
        edges = [slice(0, 0), *slices, slice(len(value), len(value))]
        parts = _parts([slice(before.stop, after.start) for before, after in pairwise(edges)])
        layout = Layout(parts, parts(value), _parts(in_order), ids[0] if ids else None, statement, places is not None)
        alike = self._known.get(len(value), [])
        size = len(value) - sum([at.stop - at.start for at in slices])
        self._known.learn(len(value), [layout, *alike] if len(alike) < _MOST_ALIKE else [layout], size)


def _parts(slices: Sequence[slice]) -> Callable[[bytes], tuple[bytes, ...]]:
    """Cuts these parts out of a value, all at once."""
    if len(slices) > 1:
        return itemgetter(*slices)
    (only,) = slices
    return lambda value: (value[only],)


def _floats(value: bytes, of: slice) -> Iterator[slice]:
    """Where the numbers in an input's contents are, if these are one packed field of floats, as they are in memory."""
    contents = [at for number, at in fields(value, of, _MOST_FIELDS) if number == _CONTENTS_FIELD]
    packed = fields(value, contents[0], _MOST_FIELDS) if len(contents) == 1 else ()
    if len(packed) == 1 and packed[0][0] in _FLOAT_FIELDS:
        yield packed[0][1]


def fields(value: bytes, of: slice, most: int) -> Sequence[tuple[int, slice]]:
    """The number of each field of a message, and where its contents are; none if some are no bytes, or there are more.

    Where a message breaks off, the last field goes beyond its end.
    """
    at, found = of.start, list[tuple[int, slice]]()
    while at < of.stop:
        tag, at = _varint(value, at)
        length, at = _varint(value, at)
        if tag & 7 != _BYTES or len(found) == most:
            return ()
        found.append((tag >> 3, slice(at, at := at + length)))
    return found


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends; 0 and the end of the value if no number begins there."""
    number = 0
    for shift, byte in enumerate(value[at : at + 10]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    return 0, len(value)

"""Recognises requests by their bytes: compares a value with one that was parsed before, instead of parsing it.

    binary data │ JSON head │ tensor │ tensor │        protobuf │ model_name, shapes … │ tag, length │ tensor │ …
    layout      ╰── fixed ──╯ slice  ╯ slice  ╯        layout   ╰──────── fixed ───────┴─── fixed ───╯ slice  ╯

A head says how long its tensors are. A protobuf message is a sequence of fields, each of which begins with its number
and length. So if two values are equally long, and equal outside of their tensors, every parser finds the tensors at
equal offsets, and their bytes mean nothing to it. The second value says what the first one said, with its own tensors.
The id of a message is a slice too, which must be UTF-8. A layout holds only the fixed bytes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from worker.codecs.encodings.oip import Encoding, Fault, Good, Held, Judge, Statement
from worker.codecs.known import Known
from worker.codecs.request_headers import HeaderForm
from worker.core.failures import Reject

# How many layouts of one length are compared with a value; one more, and all of that length are forgotten.
_MOST_ALIKE = 4


class Layout(NamedTuple):
    """The fixed bytes of values of one length, and the statement that values with these bytes make.

    `tensors` gives the tensors of a value, in the order of the model's inputs if `is_plain`, else of the claims.
    """

    fixed_parts: Callable[[bytes], Any]
    fixed: Any
    tensors: Callable[[bytes], tuple[Any, ...]]
    id: slice | None
    statement: Statement
    is_plain: bool


class Slices(NamedTuple):
    """The slices of a value: one for each claim's tensor, and one for each id."""

    tensors: Sequence[slice]
    ids: Sequence[slice] = ()


class ComparedEncoding(Encoding[Held]):
    """An encoding whose values have layouts. It owns the ones that it has met, by the lengths of value and head."""

    has_views = False  # True: its tensors are views of the value, which copy nothing

    def __init__(self, judge: Judge, most_bytes: int) -> None:
        super().__init__(judge, most_bytes)
        self._known: Known[tuple[int, int | None], list[Layout]] = Known()

    def _read(self, form: HeaderForm, value: bytes) -> Good | Fault:
        for layout in self._known.get((len(value), form.head_length), ()):
            if layout[0](value) == layout[1]:
                _, _, tensors_of, id_at, statement, is_plain = layout
                tensors = tensors_of(value)
                try:
                    body_id = None if id_at is None else value[id_at].decode() or None
                    return statement, tensors if is_plain else statement.of_bytes(tensors), body_id
                except (UnicodeDecodeError, Reject):
                    break
        return self._judged(form, value)

    @abstractmethod
    def _slices(self, value: bytes, held: Held, good: Good) -> Slices | None:
        """The slices of the tensors and ids; None if the tensors are not all bytes of the value."""

    def _learn(self, form: HeaderForm, value: bytes, held: Held, good: Good) -> None:
        statement = good[0]
        found, order = self._slices(value, held, good), statement.claim_indexes()
        if found is None or len(found.ids) > 1:
            return
        in_order = found.tensors if order is None else [found.tensors[at] for at in order]
        slices = sorted([*found.tensors, *found.ids], key=lambda at: at.start)
        edges = [slice(0, 0), *slices, slice(len(value), len(value))]
        between = [slice(before.stop, after.start) for before, after in pairwise(edges)]
        parts = _parts([at for at in between if at.start < at.stop])
        id_at = found.ids[0] if found.ids else None
        cut = _parts(in_order)
        tensors_of = (lambda value: cut(memoryview(value))) if self.has_views else cut
        layout = Layout(parts, parts(value), tensors_of, id_at, statement, order is not None)
        key, size = (len(value), form.head_length), len(value) - sum([at.stop - at.start for at in slices])
        alike = self._known.get(key, [])
        self._known.learn(key, [layout, *alike] if len(alike) < _MOST_ALIKE else [layout], size)


def _parts(slices: Sequence[slice]) -> Callable[[Any], tuple[Any, ...]]:
    """The function that cuts these parts out of a value, all at once."""
    if len(slices) > 1:
        return itemgetter(*slices)
    (only,) = slices
    return lambda value: (value[only],)

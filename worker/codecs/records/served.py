"""The inputs that take a part of a record as it is, for the model's process to prepare: pictures, and whole records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worker.codecs.records.elements import Element, Faults, Values, as_objects
from worker.codecs.records.inputs import Counts, Fields, Input, Made
from worker.codecs.records.paths import VALUE, WHOLE, Path
from worker.codecs.records.projection import Column, Wish
from worker.codecs.records.sources import Source
from worker.core.block import Block
from worker.core.failures import BadConfiguration
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec

# Levels of lists and objects in a whole record. Pickle takes some 480, as deep as the worker's own calls leave it.
DEEPEST = 200
_CONTAINERS = frozenset((dict, list))

# The names of the inputs that the model's process makes others of (`worker/inference/records/`).
TEXT, TEXT_PAIR, IMAGE, RECORD_INPUT = "text", "text_pair", "image", "record"
# The name of the output whose values are fields that an operator's function made.
ANSWER = "answer"


class _EncodedPicture(Element):
    """A picture as its bytes, which in JSON are base64."""

    @property
    def is_plain(self) -> bool:
        return False

    def _type(self) -> Any:
        return bytes

    def array(self, values: Values, faults: Faults) -> Array:
        for at in [at for at, value in enumerate(values) if not value]:
            faults[at] = "a picture, got nothing"
        return as_objects(values)


def picture_input(spec: TensorSpec, path: Path, rows: Path | None) -> Input:
    """The input of encoded pictures that a field holds; `rows` as of `input_of`. Raises `BadConfiguration`."""
    where = "[records.image] field"
    if path.has_each and not (rows is not None and path.below(rows)):
        raise BadConfiguration(f"{where}: {path} goes through an array, and a row has one picture")
    return Fields(spec, [_EncodedPicture(where, spec, Source(path), takes_nan=False)], None)


class WholeRecord(Input):
    """The whole record, as an object of Python."""

    @property
    def wishes(self) -> Sequence[Wish]:
        return [Wish(WHOLE, dict[str, Any])]

    def make(self, columns: Sequence[Column], counts: Counts, count: int, faults: Faults) -> Made:  # noqa: ARG002  # a row is a record
        for at in [at for at, record in enumerate(columns[0]) if _is_deep(record)]:
            faults.setdefault(at, f"the record is nested too deeply: more than {DEEPEST} levels")
        return Made(Block(as_objects(columns[0])), ())


class WholeValue(Input):
    """A value without fields, a text or bytes: a dict that has it by the name that it has in a mapping."""

    def __init__(self, spec: TensorSpec, kind: type[str | bytes]) -> None:
        super().__init__(spec)
        self._wish = Wish(VALUE, kind)

    @property
    def wishes(self) -> Sequence[Wish]:
        return [self._wish]

    def make(self, columns: Sequence[Column], counts: Counts, count: int, faults: Faults) -> Made:  # noqa: ARG002  # nothing can be wrong
        return Made(Block(as_objects([{VALUE.name: value} for value in columns[0]])), ())


def _is_deep(record: Any) -> bool:
    """True if a record cannot go to the model's process. It takes 1.5 µs for a record of 15 fields (2026-11)."""
    level = [record]
    for _ in range(DEEPEST):
        level = [
            value
            for one in level
            for value in (one.values() if type(one) is dict else one)
            if type(value) in _CONTAINERS
        ]
        if not level:
            return False
    return True

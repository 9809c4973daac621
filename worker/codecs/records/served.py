"""The inputs that take a part of a record as it is, for the model's process to prepare: pictures, and whole records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worker.codecs.records.elements import Faults
from worker.codecs.records.inputs import Counts, Input, Made
from worker.codecs.records.paths import WHOLE, Path
from worker.codecs.records.projection import Column, Wish
from worker.core.tensors.specs import TensorSpec

# The names of the inputs that the model's process makes others of (`worker/inference/records/`).
TEXT, TEXT_PAIR, IMAGE, RECORD_INPUT = "text", "text_pair", "image", "record"


class Picture(Input):
    """A field that holds an encoded picture: bytes, or base64 in JSON."""

    def __init__(self, spec: TensorSpec, path: Path) -> None:
        super().__init__(spec)
        self._path = path

    @property
    def wishes(self) -> Sequence[Wish]:
        return [Wish(self._path, bytes)]

    def make(self, columns: Sequence[Column], counts: Counts, count: int, faults: Faults) -> Made:  # noqa: ARG002  # a row is a record
        for at in [at for at, value in enumerate(columns[0]) if not value]:
            faults.setdefault(at, f"{self._path}: expected a picture, got nothing")
        return Made([[value] for value in columns[0]], ())


class Whole(Input):
    """The whole record, as an object of Python."""

    @property
    def wishes(self) -> Sequence[Wish]:
        return [Wish(WHOLE, dict[str, Any])]

    def make(self, columns: Sequence[Column], counts: Counts, count: int, faults: Faults) -> Made:  # noqa: ARG002  # as above
        return Made([[value] for value in columns[0]], ())

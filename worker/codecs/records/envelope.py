"""The envelope around a record: Debezium puts it into `after`, Connect into `payload`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from worker.codecs.records.paths import Path
from worker.codecs.records.projection import Given, Projection, ReaderOf, Wish, from_json


class Unwrapped(NamedTuple):
    """The records of n envelopes. One with a fault, and one that is `empty` (null), is an object without fields."""

    values: Sequence[Given]
    faults: dict[int, str]
    empty: Sequence[int]


class Envelope:
    """Takes records out of their envelopes."""

    def __init__(self, path: Path, reader_of: ReaderOf) -> None:
        self.path = path
        self._is_json = reader_of is from_json
        self._projection = Projection([Wish(path, msgspec.Raw if self._is_json else Any)], reader_of)

    def unwrapped(self, values: Sequence[Given], *, skips_null: bool) -> Unwrapped:
        """The records in these envelopes. `skips_null`: null, as of a row that was deleted, is no fault."""
        good, (inner,), wrong = self._projection.read(values)
        nothing: Given = b"{}" if self._is_json else {}
        unwrapped, faults, empty = [nothing] * len(values), dict(wrong), list[int]()
        for at, value in zip(good, inner, strict=True):
            if value is not None and not (self._is_json and bytes(value) == b"null"):
                unwrapped[at] = value
            elif skips_null:
                empty.append(at)
            else:
                faults[at] = f"{self.path}: expected a record, got null"
        return Unwrapped(unwrapped, faults, empty)

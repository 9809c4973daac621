"""The encoding of records: it reads values by a mapping, where others read Open Inference Protocol requests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from math import prod
from typing import Any, NamedTuple

from worker.codecs.encodings.oip import Fault, Kind, Part, Reads, grouped
from worker.codecs.known import Known
from worker.codecs.records.extreme_numbers import LOOKED_AT_FROM, MOST_EXTREMES, has_too_many
from worker.codecs.records.framed_values import FramedValues
from worker.codecs.records.mapping import Mapped, RecordMapping
from worker.codecs.records.projection import Given
from worker.codecs.request_headers import HeaderForm
from worker.core.chunk import Shapes, Waiting
from worker.core.failures import Code, Reject
from worker.core.records import Record
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TEXT_BYTES

# Bytes that a whole record holds as objects of Python, for each of its value. Usual records hold some 5, lists of empty
# lists 22 (2026-11).
WHOLE_HOLDS = 8


class Rows(NamedTuple):
    """The rows of one record: their number, their shapes, and the bytes that their tensors hold."""

    rows: int
    shapes: Shapes
    memory: int


class RecordEncoding:
    """Reads records: JSON objects, texts, bytes, or what a schema in a registry says."""

    def __init__(
        self,
        signature: Signature,
        mapping: RecordMapping,
        most_bytes: int,
        framed: FramedValues | None = None,
        *,
        keeps_order: bool,
    ) -> None:
        """`most_bytes`: of a record that is read. `framed` reads values with a schema; None: they are as they are.

        `keeps_order`: only neighbours share a chunk.
        """
        self._signature = signature
        self._mapping = mapping
        self._takes_whole = mapping.takes_whole
        self._most_bytes = most_bytes
        self._framed = framed
        self._keeps_order = keeps_order
        self._known = Known[tuple[int, Shapes], Rows | Fault]()
        self._kinds = Known[HeaderForm, Kind]()

    def read(self, forms: Sequence[HeaderForm], values: Sequence[bytes], records: Sequence[Record]) -> Reads:
        """Read values, none of them empty: the good ones, and the faults by index."""
        faults: dict[int, Fault] = {}
        mapped = self._mapping.read(self._given(values, records, faults), records)
        for at, why in mapped.faults.items():
            faults.setdefault(at, Fault(Code.INVALID_ARGUMENT, why, None))
        for at in mapped.passed_over:
            faults.setdefault(at, _PASSED_OVER)
        good, rows = mapped.good, self._rows(mapped)
        if self._takes_whole:
            rows = [_with_objects(each, len(values[index])) for index, each in zip(good, rows, strict=True)]
        places: Sequence[int] = range(len(good))
        if Fault in set(map(type, rows)):
            faults |= {index: each for index, each in zip(good, rows, strict=True) if isinstance(each, Fault)}
        if faults:
            places = [place for place in places if good[place] not in faults]
        if forms.count(forms[0]) == len(forms):
            kinds = [self._kind(forms[0])] * len(places)
        else:
            kinds = [self._kind(forms[good[place]]) for place in places]
        parts = [
            self._part(kinds[own[0]], own if len(own) == len(good) else [places[at] for at in own], mapped, rows)
            for own in grouped(range(len(places)), kinds, keeps_order=self._keeps_order)
        ]
        return parts, list(faults.items())

    def waiting(self, records: Sequence[Record]) -> Waiting | None:
        """The first of these records that cannot be read yet; None: all can be."""
        return None if self._framed is None else self._framed.waiting(records)

    def body_id(self, _form: HeaderForm, _value: bytes) -> str | None:
        """The id in the body; a record has none."""
        return None

    def _given(self, values: Sequence[bytes], records: Sequence[Record], faults: dict[int, Fault]) -> Sequence[Given]:
        """The values as the mapping takes them."""
        given = self._readable(values, faults)
        if self._framed is not None:
            given = self._framed.objects(records, faults)
        return _without_extremes(given, faults) if self._mapping.reads_values else given

    def _readable(self, values: Sequence[bytes], faults: dict[int, Fault]) -> Sequence[Given]:
        if max(map(len, values)) <= self._most_bytes:
            return values
        for at, value in enumerate(values):
            if len(value) > self._most_bytes:
                why = f"the record has {len(value)} bytes, at most {self._most_bytes} are read"
                faults[at] = Fault(Code.RESOURCE_EXHAUSTED, f"{why} (WORKER_KAFKA__MAX_JSON_BYTES)", None)
        return [b"{}" if at in faults else value for at, value in enumerate(values)]

    def _kind(self, form: HeaderForm) -> Kind:
        kind = self._kinds.get(form)
        if kind is None:
            kind = Kind(self._signature.key, form.reply, form.state)
            self._kinds.learn(form, kind)
        return kind

    def _rows(self, mapped: Mapped) -> Sequence[Rows | Fault]:
        """The rows of each good record, or why it has too many."""
        count = len(mapped.good)
        if mapped.rows is None and list not in map(type, mapped.dims):
            return [self._taken(1, tuple(mapped.dims))] * count  # type: ignore[arg-type]  # all are tuples
        each = [repeat(dims, count) if isinstance(dims, tuple) else dims for dims in mapped.dims]
        return list(map(self._taken, mapped.rows or repeat(1), zip(*each, strict=True)))

    def _taken(self, rows: int, shapes: Shapes) -> Rows | Fault:
        known = self._known.get((rows, shapes))
        if known is None:
            known = self._judged(rows, shapes)
            self._known.learn((rows, shapes), known)
        return known

    def _judged(self, rows: int, shapes: Shapes) -> Rows | Fault:
        signature = self._signature
        if rows > signature.max_rows:
            why = f"{rows} rows, at most {signature.max_rows} are taken in one record"
            return Fault(Code.RESOURCE_EXHAUSTED, why, None)
        try:
            signature.buckets.check(shapes)
        except Reject as no:
            return Fault(no.code, no.message, None)
        specs = zip(signature.inputs, shapes, strict=True)
        row = sum(prod(dims) * (TEXT_BYTES if spec.is_text else spec.element_bytes) for spec, dims in specs)
        return Rows(rows, shapes, rows * row)

    @staticmethod
    def _part(kind: Kind, places: Sequence[int], mapped: Mapped, rows: Sequence[Any]) -> Part:
        """The part of the records at these places among the good ones."""
        good, tensors, kept, keys = mapped.good, mapped.tensors, mapped.kept, mapped.keys
        if len(places) == len(good):
            return Part(kind, good, rows, tensors, (), kept, keys)
        pick = partial(_picked, places)
        own = [pick(column) for column in tensors]
        return Part(kind, pick(good), pick(rows), own, (), kept and pick(kept), keys and pick(keys))


def _without_extremes(given: Sequence[Given], faults: dict[int, Fault]) -> Sequence[Given]:
    """These values, without JSON that would take long to read."""
    if max(map(len, given)) < LOOKED_AT_FROM:
        return given
    slow = {at for at, value in enumerate(given) if isinstance(value, bytes | memoryview) and has_too_many(value)}
    if not slow:
        return given
    why = f"the record has more than {MOST_EXTREMES:,} numbers beyond 1e200 or below 1e-200"
    faults.update(dict.fromkeys(slow, Fault(Code.RESOURCE_EXHAUSTED, why, None)))
    return [b"{}" if at in slow else value for at, value in enumerate(given)]


def _with_objects(rows: Rows | Fault, size: int) -> Rows | Fault:
    """These rows, with the memory for the objects of a whole record, whose value has this size."""
    return rows if isinstance(rows, Fault) else rows._replace(memory=rows.memory + WHOLE_HOLDS * size)


def _picked(places: Sequence[int], column: Sequence[Any]) -> list[Any]:
    return [column[place] for place in places]


_PASSED_OVER = Fault(Code.INVALID_ARGUMENT, "another kind of record", None, is_silent=True)

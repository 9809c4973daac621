"""Answers to records: JSON objects with the kept fields of the record, and then the fields of the answer.

    {"payment_id":17,"score":0.93,"label":"fraud"}

All answers of a chunk are written column by column: one text of a whole column is cut into one for each answer, and
constant pieces are joined between them. A form judges nothing but what it cannot write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import orjson

from worker.codecs.answer_forms import AnswerForm, Bodies, Repeats
from worker.codecs.encodings.columns import MOST_WRITTEN, Column, EvenColumn, in_json
from worker.codecs.wire_contract import JSON
from worker.core.failures import Reject
from worker.core.records import ModelKey

# The names of the record's fields that an answer keeps; "all": the record itself, with the answer's fields added.
Keep = Sequence[str] | Literal["all"]

_encoder = msgspec.json.Encoder()
# A string in JSON has no bare line break, and no error that follows ends the worker: values may nest too deeply, hold
# half characters, or be of a type that JSON does not know.
_UNFIT = (TypeError, ValueError, RecursionError)


def record_form(keep: Keep = (), *, has_rows: bool = False) -> AnswerForm:
    """The form of JSON records. `has_rows`: a record is several rows, so each field is a list with one entry a row.

    For names to keep, a record's entry in `Chunk.kept` is a tuple of values; for "all" it is its JSON text, bytes.
    """

    def write(_model: ModelKey, columns: Sequence[Column], count: int, kept: Repeats) -> Bodies:
        fields = [_written(column, has_rows=has_rows) for column in columns]
        pieces: list[Iterable[bytes]] = []
        before, ends = b"{", None
        if keep == "all":
            heads, ends = _apart(kept or ())
            pieces.append(heads)
            before = b""
        elif keep:
            for name, values in zip(keep, zip(*kept or (), strict=True), strict=True):
                pieces += repeat(before + _key(name), count), _kept(name, values)
                before = b","
        for name, depth, texts in fields:
            pieces += repeat(before + _key(name) + b"[" * depth, count), texts
            before = b"]" * depth + b","
        pieces.append(repeat(before[:-1] + b"}", count) if ends is None else [before[:-1] + end for end in ends])
        return list(map(b"".join, zip(*pieces, strict=True))), ()

    return AnswerForm(JSON, write, only_bytes=False, by_default=False)


class _Written(NamedTuple):
    """A field in JSON: the text for each record, without `depth` brackets around it."""

    name: str
    depth: int
    texts: Sequence[bytes]


def _written(column: Column, *, has_rows: bool) -> _Written:
    name = column.spec.name
    if column.spec.is_text:
        return _Written(name, 0, lines(python_values(column, has_rows=has_rows)))
    if isinstance(column, EvenColumn) and 0 < column.whole.size <= MOST_WRITTEN:
        whole = column.parts if has_rows else column.whole
        depth = whole.ndim - 1
        text = in_json(whole)[depth + 1 : -depth - 1]
        return _Written(name, depth, text.split(b"]" * depth + b"," + b"[" * depth))
    return _Written(name, 0, [in_json(part if has_rows else part[0]) for part in column.parts])


def python_values(column: Column, *, has_rows: bool) -> list[Any]:
    """The field of each record as Python values: a number or a text, or lists of such."""
    if isinstance(column, EvenColumn):
        values: list[Any] = (column.parts if has_rows else column.whole).tolist()
        return values
    return [(part if has_rows else part[0]).tolist() for part in column.parts]


def _kept(name: str, values: Sequence[Any]) -> Sequence[bytes]:
    try:
        return lines(values)
    except _UNFIT:
        raise Reject(f"{name}: the answer keeps this field, and its value cannot be written in JSON") from None


def lines(values: Sequence[Any]) -> Sequence[bytes]:
    """The values in JSON: decimals and instants as texts, bytes in base64, NaN and infinity as null."""
    texts = _encoder.encode_lines(values).split(b"\n")
    texts.pop()  # what follows the last line
    if len(texts) == len(values):
        return texts
    return list(map(_encoder.encode, values))  # a text that came in JSON (`msgspec.Raw`) has line breaks


def _apart(records: Iterable[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Each record in two: up to the place where fields can be added, and from its last brace on."""
    heads, ends = [], []
    for record in records:
        at = record.rindex(b"}")
        head = record[:at]
        heads.append(head if head.rstrip().endswith(b"{") else head + b",")
        ends.append(record[at:])
    return heads, ends


def _key(name: str) -> bytes:
    return orjson.dumps(name) + b":"


# Answers with a schema


class ColumnWriter(Protocol):
    """Writes answers in another form, from the columns of their values."""

    content_type: str

    def write(self, columns: Sequence[Sequence[Any]]) -> Sequence[bytes]:
        """The answers: n of them, of the kept fields' columns and then the fields', with n values each."""

    def error(self, message: str) -> bytes:
        """The error of a record."""


def schema_form(writer: ColumnWriter, *, has_rows: bool = False) -> AnswerForm:
    """The form of answers that this writer writes."""

    def write(_model: ModelKey, columns: Sequence[Column], _count: int, kept: Repeats) -> Bodies:
        fields = [python_values(column, has_rows=has_rows) for column in columns]
        return writer.write([*zip(*kept or (), strict=True), *fields]), ()

    return AnswerForm(
        writer.content_type,
        write,
        only_bytes=True,
        error_type=writer.content_type,
        error=lambda message, _id: writer.error(message),
    )

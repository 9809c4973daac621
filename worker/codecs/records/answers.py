"""Answers to records: JSON objects with the kept fields of the record, and then the fields of the answer.

    {"payment_id":17,"score":0.93,"label":"fraud"}

All answers of a chunk are written column by column: one text of a whole column is cut into one for each answer, and
constant pieces are joined between them. A form judges nothing but what it cannot write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import orjson

from worker.codecs.answer_forms import AnswerForm, Bodies, Repeats
from worker.codecs.encodings.columns import MOST_WRITTEN, Column, EvenColumn, EvenTexts, in_json
from worker.codecs.wire_contract import JSON
from worker.core.failures import Code, Reject
from worker.core.records import ModelKey

# The names of the record's fields that an answer keeps; "all": the record itself, with the answer's fields added.
Keep = Sequence[str] | Literal["all"]

# An object that ends so before its brace may be empty.
_OPEN = frozenset(b"{ \t\r\n")
_encoder = msgspec.json.Encoder()
_names_in = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# A string in JSON has no bare line break, and no error that follows ends the worker: values may nest too deeply, hold
# half characters, or be of a type that JSON does not know.
_UNFIT = (TypeError, ValueError, RecursionError)


def record_form(keep: Keep = (), *, has_rows: bool = False) -> AnswerForm:
    """The form of JSON records. `has_rows`: a record is several rows, so each field is a list with one entry a row.

    For names to keep, a record's entry in `Chunk.kept` is a tuple of values; for "all" it is its JSON text as bytes, or
    a dict.
    """

    def write(_model: ModelKey, columns: Sequence[Column], count: int, kept: Repeats) -> Bodies:
        made = [] if has_rows else [column for column in columns if _is_made_by_function(column)]
        own = [column for column in columns if column not in made] if made else columns
        if not own and keep == "all":
            texts = _in_json(kept or ())
        else:
            texts = _joined(_repeated(keep, kept or (), count), own, count)
        for column in made:
            texts = _merged(texts, python_values(column, has_rows=False))
        return texts, ()

    def _joined(beginnings: _Beginnings, columns: Sequence[Column], count: int) -> Sequence[bytes]:
        pieces, before, ends = beginnings
        for column in columns:
            depth, texts = _texts(column, has_rows=has_rows)
            pieces += repeat(before + _key(column.spec.name) + b"[" * depth, count), texts
            before = b"]" * depth + b","
        closing = before.removesuffix(b",")
        pieces.append(repeat(closing + b"}", count) if ends is None else [closing + end for end in ends])
        return list(map(b"".join, zip(*pieces, strict=True)))

    return AnswerForm(JSON, write, only_bytes=False, by_default=False, is_of_records=True)


class _Beginnings(NamedTuple):
    """The pieces with which each answer begins, what stands before its first field, and its end if this is no brace."""

    pieces: list[Iterable[bytes]]
    before: bytes = b"{"
    ends: Sequence[bytes] | None = None


def _repeated(keep: Keep, kept: Sequence[Any], count: int) -> _Beginnings:
    """The beginnings that repeat what is kept of each record."""
    if keep == "all":
        return _added_to(kept)
    pieces, before = list[Iterable[bytes]](), b"{"
    for name, values in zip(keep, zip(*kept, strict=True), strict=True):
        pieces += repeat(before + _key(name), count), _lines_of_kept(name, values)
        before = b","
    return _Beginnings(pieces, before)


def _added_to(records: Sequence[Any]) -> _Beginnings:
    """The beginnings of these objects, in JSON or in Python, to which fields are added before the last brace."""
    heads, _, tails = zip(*[record.rpartition(b"}") for record in _in_json(records)], strict=True)
    ends = [b"}" + tail for tail in tails] if any(tails) else None
    if _OPEN.isdisjoint([head[-1] for head in heads]):
        return _Beginnings([heads], b",", ends)
    return _Beginnings([heads, [b"" if head.rstrip()[-1:] == b"{" else b"," for head in heads]], b"", ends)


def _in_json(records: Sequence[Any]) -> Sequence[bytes]:
    """Whole records in JSON, which may be that already."""
    return _in_utf8("the record", lambda: records if isinstance(records[0], bytes) else lines(records))


def _lines_of_kept(name: str, values: Sequence[Any]) -> Sequence[bytes]:
    return _in_utf8(name, lambda: lines(values))


def _in_utf8(name: str, written: Callable[[], Sequence[bytes]]) -> Sequence[bytes]:
    """The kept part, as it is written. A record's text was read only where the mapping looks, and may not be UTF-8."""
    try:
        texts = written()
        b",".join(texts).decode()
    except _UNFIT:
        raise Reject(f"{name}: the answer keeps it, and it holds a value that cannot be written in JSON") from None
    return texts


def _texts(column: Column, *, has_rows: bool) -> tuple[int, Sequence[bytes]]:
    """The text of the field in JSON for each record, and how many brackets are missing around it."""
    if column.spec.is_text:
        return 0, lines(python_values(column, has_rows=has_rows))
    if not isinstance(column, EvenColumn) or not 0 < column.whole.size <= MOST_WRITTEN:
        return 0, [in_json(part if has_rows else part[0]) for part in column.parts]
    whole = column.parts if has_rows else column.whole
    depth = whole.ndim - 1
    return depth, in_json(whole)[whole.ndim : -whole.ndim].split(b"]" * depth + b"," + b"[" * depth)


def python_values(column: Column, *, has_rows: bool) -> list[Any]:
    """The field of each record as Python values: a number or a text, or lists of such."""
    if isinstance(column, EvenColumn):
        values: list[Any] = (column.parts if has_rows else column.whole).tolist()
        return values
    return [(part if has_rows else part[0]).tolist() for part in column.parts]


def lines(values: Sequence[Any]) -> Sequence[bytes]:
    """The values in JSON: decimals and instants as texts, bytes in base64, NaN and infinity as null."""
    texts = _encoder.encode_lines(values).split(b"\n")
    texts.pop()  # what follows the last line
    if len(texts) == len(values):
        return texts
    return list(map(_encoder.encode, values))  # a text that came in JSON (`msgspec.Raw`) has line breaks


def _key(name: str) -> bytes:
    return orjson.dumps(name) + b":"


# Answers of an operator's function


def _is_made_by_function(column: Column) -> bool:
    """True for a column that holds the fields that a function made for each record."""
    return isinstance(column, EvenTexts) and column.whole.size > 0 and type(column.whole.flat[0]) is dict


def _merged(texts: Sequence[bytes], made: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """The answers with the fields made by a function behind theirs. Raises `Reject` for a field that is there twice."""
    answers = []
    for text, fields, added in zip(texts, made, lines(made), strict=True):
        names = _names_in(text)
        if clash := [name for name in fields if name in names]:
            why = f"the function `answer` gave the field {clash[0]!r}, which the answer has already"
            raise Reject(why, Code.INTERNAL)
        at = text.rindex(b"}")
        comma = b"," if names and fields else b""
        answers.append(b"".join((text[:at], comma, added[1:-1], text[at:])))
    return answers


# Answers with a schema


class ColumnWriter(Protocol):
    """Writes answers in another form, from the columns of their values."""

    content_type: str

    def write(self, columns: Sequence[Sequence[Any]]) -> Sequence[bytes]:
        """The answers: n of them, of the kept fields' columns and then the fields', with n values each."""

    def error(self, message: str) -> bytes:
        """The error of a record."""


def schema_form(writer: ColumnWriter, names: Sequence[str] = (), *, has_rows: bool = False) -> AnswerForm:
    """The form of answers that this writer writes.

    `names` are the kept fields' names. An entry in `Chunk.kept` is a tuple of their values, or a record that has them.
    """

    def write(_model: ModelKey, columns: Sequence[Column], _count: int, kept: Repeats) -> Bodies:
        repeated: Iterable[Sequence[Any]] = zip(*kept or (), strict=True)
        if kept and isinstance(kept[0], dict):
            repeated = [[record.get(name) for record in kept] for name in names]
        return writer.write([*repeated, *[python_values(column, has_rows=has_rows) for column in columns]]), ()

    return AnswerForm(
        writer.content_type,
        write,
        only_bytes=True,
        error_type=writer.content_type,
        error=lambda message, _id: writer.error(message),
        is_of_records=True,
    )

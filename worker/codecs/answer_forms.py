"""The forms in which answers are written: plain rows, JSON, protobuf, and the binary-data form. One `AnswerForm` each.

A form writes the values of a chunk at once, and the text of an error. It judges nothing: the caller has checked that
JSON can express the numbers, and checks the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from worker.codecs.encodings import json_writer, protobuf_writer
from worker.codecs.encodings.columns import Column
from worker.codecs.message_sizes import Header
from worker.codecs.wire_contract import DATATYPE, HEAD_LENGTH, JSON, OCTETS, PROTOBUF, ROWS
from worker.core.records import ModelKey, ReplyForm

BodyIds = Sequence[str | None] | None
# The values of n answers, and the headers that say how to read each; none if the values need no such headers.
Bodies = tuple[Sequence[bytes], Sequence[Sequence[Header]]]
Write = Callable[[ModelKey, Sequence[Column], int, BodyIds], Bodies]


class AnswerForm(NamedTuple):
    """How answers are written: results by `write`, errors by `error`. `only_bytes`: no output can be text."""

    content_type: str
    write: Write
    only_bytes: bool
    error_type: str = JSON
    error: Callable[[str, str | None], bytes] = json_writer.error


def form_of(reply: ReplyForm) -> AnswerForm:
    """The form for this reply."""
    if reply.content_type == OCTETS and not reply.outputs:
        return _STATED_ROWS if reply.states_rows else _ROWS
    return _FORMS[reply.content_type]


def _rows(_model: ModelKey, columns: Sequence[Column], _count: int, _ids: BodyIds) -> Bodies:
    """The rows of the only output, without a name: a plain row has no room for one."""
    return columns[0].raws(), ()


def _stated_rows(_model: ModelKey, columns: Sequence[Column], _count: int, _ids: BodyIds) -> Bodies:
    """The rows, with their datatype and number: a reader with another signature would misread them."""
    datatype = (DATATYPE, columns[0].spec.datatype.encode())
    return columns[0].raws(), [(datatype, (ROWS, b"%d" % len(part))) for part in columns[0].parts]


def _json(model: ModelKey, columns: Sequence[Column], count: int, ids: BodyIds) -> Bodies:
    return json_writer.values(model, columns, count, ids), ()


def _binary(model: ModelKey, columns: Sequence[Column], count: int, ids: BodyIds) -> Bodies:
    values, heads = json_writer.binary_values(model, columns, count, ids)
    return values, [((HEAD_LENGTH, b"%d" % length),) for length in heads]


def _protobuf(model: ModelKey, columns: Sequence[Column], count: int, ids: BodyIds) -> Bodies:
    return protobuf_writer.values(model, columns, count, ids), ()


_ROWS = AnswerForm(OCTETS, _rows, only_bytes=True)
_STATED_ROWS = AnswerForm(OCTETS, _stated_rows, only_bytes=True)
_FORMS = {
    form.content_type: form
    for form in (
        AnswerForm(JSON, _json, only_bytes=False),
        AnswerForm(PROTOBUF, _protobuf, only_bytes=True, error_type=PROTOBUF, error=protobuf_writer.error),
        AnswerForm(OCTETS, _binary, only_bytes=False),
    )
}

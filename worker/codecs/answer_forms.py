"""The forms of answers to requests: plain rows, JSON, protobuf, and the binary-data form. One `AnswerForm` each.

`reply_form` decides which one a request gets. A form writes the values of a chunk at once, and the text of an error. It
judges nothing then: the caller has checked that JSON can express the numbers, and checks the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from worker.codecs.encodings import json_writer, protobuf_writer
from worker.codecs.encodings.columns import Column
from worker.codecs.message_sizes import Header
from worker.codecs.request_headers import HeaderForm
from worker.codecs.wire_contract import DATATYPE, HEAD_LENGTH, JSON, OCTETS, PROTOBUF, ROWS
from worker.core.failures import Reject, listed
from worker.core.records import ModelKey, ReplyForm, RequestedOutput
from worker.core.tensors.signature import Signature

# What each answer repeats: the id in a request's body, or what is kept of a record. None: nothing.
Repeats = Sequence[Any] | None
# The values of n answers, and the headers that say how to read each; none if the values need no such headers.
Bodies = tuple[Sequence[bytes], Sequence[Sequence[Header]]]
Write = Callable[[ModelKey, Sequence[Column], int, Repeats], Bodies]
# The name of an output that a request wants, and whether as bytes; None: the request as a whole decides that.
WantedOutput = tuple[str, bool | None]


class AskedAnswer(NamedTuple):
    """The answer that a request asks for: the outputs, all if none is named.

    `binary` is the form of outputs that do not say theirs, None: the encoding decides. `is_rows`: plain rows came, so
    plain rows go back, unless there are several outputs, or strings.
    """

    outputs: Iterable[WantedOutput] = ()
    binary: bool | None = None
    is_rows: bool = False


class AnswerForm(NamedTuple):
    """A form writes answers: results by `write`, errors by `error`.

    `only_bytes`: no output can be text. `by_default`: the outputs are bytes unless the request says otherwise.
    `as_bytes`: the content type of answers in this form in which an output is wanted as bytes. `is_of_records`: answers
    repeat what is kept of their records, and no ids of requests.
    """

    content_type: str
    write: Write
    only_bytes: bool
    by_default: bool = True
    as_bytes: str = ""
    error_type: str = JSON
    error: Callable[[str, str | None], bytes] = json_writer.error
    is_of_records: bool = False


def reply_form(signature: Signature, headers: HeaderForm, asked: AskedAnswer) -> ReplyForm:
    """The form of the answer to a request. Raises `Reject` if no admitted encoding can carry it."""
    wanted, binary, is_rows = list(asked.outputs), asked.binary, asked.is_rows
    reply, names = headers.reply, signature.output_index
    form = _FORMS[reply.content_type]
    if unknown := [name for name, _ in wanted if name not in names]:
        raise Reject(f"the model has no output {unknown[0][:80]!r}; it gives {listed(signature.outputs)}")
    if len({name for name, _ in wanted}) < len(wanted):
        raise Reject("an output is asked for twice")
    if is_rows and form is _BINARY and len(names) == 1 and not signature.outputs[0].is_text:
        return reply
    by_default = form.only_bytes or (form.by_default if binary is None else binary)
    requested = tuple(
        [
            RequestedOutput(name, by_default if own is None or form.only_bytes else own)
            for name, own in wanted or [(name, None) for name in names]
        ]
    )
    for name, is_bytes in requested:
        if not is_bytes and signature.outputs[names[name]].datatype == "FP16":
            raise Reject(
                f"output {name}: FP16 has no form in JSON; ask for it with the parameter "
                "binary_data, or accept application/octet-stream or application/x-protobuf"
            )
    if form.as_bytes and any(output.binary for output in requested):
        if form.as_bytes not in headers.admitted:
            raise Reject(f"binary outputs are asked for, but `accept` admits only {', '.join(headers.admitted)}")
        reply = reply._replace(content_type=form.as_bytes)
    return reply._replace(outputs=requested)


def form_of(reply: ReplyForm) -> AnswerForm:
    """The form for this reply."""
    form = _FORMS[reply.content_type]
    if form is _BINARY and not reply.outputs:
        return _STATED_ROWS if reply.states_rows else _ROWS
    return form


def _rows(_model: ModelKey, columns: Sequence[Column], _count: int, _ids: Repeats) -> Bodies:
    """The rows of the only output, without a name: a plain row has no room for one."""
    return columns[0].raws(), ()


def _stated_rows(_model: ModelKey, columns: Sequence[Column], _count: int, _ids: Repeats) -> Bodies:
    """The rows, with their datatype and number: a reader with another signature would misread them."""
    datatype = (DATATYPE, columns[0].spec.datatype.encode())
    return columns[0].raws(), [(datatype, (ROWS, b"%d" % len(part))) for part in columns[0].parts]


def _json(model: ModelKey, columns: Sequence[Column], count: int, ids: Repeats) -> Bodies:
    return json_writer.values(model, columns, count, ids), ()


def _binary(model: ModelKey, columns: Sequence[Column], count: int, ids: Repeats) -> Bodies:
    values, heads = json_writer.binary_values(model, columns, count, ids)
    return values, [((HEAD_LENGTH, b"%d" % length),) for length in heads]


def _protobuf(model: ModelKey, columns: Sequence[Column], count: int, ids: Repeats) -> Bodies:
    return protobuf_writer.values(model, columns, count, ids), ()


_ROWS = AnswerForm(OCTETS, _rows, only_bytes=True)
_STATED_ROWS = AnswerForm(OCTETS, _stated_rows, only_bytes=True)
_JSON = AnswerForm(JSON, _json, only_bytes=False, by_default=False, as_bytes=OCTETS)
_PROTOBUF = AnswerForm(PROTOBUF, _protobuf, only_bytes=True, error_type=PROTOBUF, error=protobuf_writer.error)
_BINARY = AnswerForm(OCTETS, _binary, only_bytes=False)
_FORMS = {form.content_type: form for form in (_JSON, _PROTOBUF, _BINARY)}

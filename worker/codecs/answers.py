"""Writes answers as records to produce: a result or an error, in the encoding that its requester wants.

An answer carries the request's key and the headers `content-type`, `status`, `model-version`, `error-code` for errors,
`source`, `request-id` if it differs from the source, and the echoes. Plain rows also carry `datatype` and `rows` if the
request had them. The caller judges the size; only the size of JSON is judged here, before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from worker.codecs.encodings import oip_json
from worker.codecs.encodings.elements import to_bytes
from worker.codecs.encodings.oip import Output, chosen
from worker.codecs.wire_contract import (
    CONTENT_TYPES,
    DATATYPE,
    HEAD_LENGTH,
    JSON,
    MAX_MESSAGE,
    MODEL_VERSION,
    OCTETS,
    PROTOBUF,
    ROWS,
    Wire,
)
from worker.core.failures import Code, Reject
from worker.core.records import Array, Message, ModelKey, Prediction, Record, Rejection, Reply, ReplyTo
from worker.core.runs import MessageRun, Run
from worker.core.tensors.signature import Signature

Header = tuple[str, bytes | None]

_CONTENT_TYPE: dict[str, Header] = {name: ("content-type", name.encode()) for name in CONTENT_TYPES}
_OK: Header = ("status", b"ok")
_ERROR: Header = ("status", b"error")
_CODE: dict[Code, Header] = {code: ("error-code", code.encode()) for code in Code}


# The most bytes of a run's output that are kept for its next request: larger rows are as quickly copied one by one.
_MOST_KEPT = 256 * 1024


class _Cut(NamedTuple):
    """The last run whose rows were asked for, and the bytes of its only output."""

    run: Sequence[Array]
    rows: bytes
    row_bytes: int


class Answers:
    """Writes the answers of some models for one response topic."""

    def __init__(self, signatures: Iterable[Signature], wire: Wire) -> None:
        self._signatures = {signature.key: signature for signature in signatures}
        versions: dict[ModelKey, Header] = {
            key: (MODEL_VERSION, signature.edition.encode()) for key, signature in self._signatures.items()
        }
        self._versions = versions
        self._first_version = next(iter(versions.values()))  # for errors, which come from no model
        self._to = ReplyTo(wire.response_topic, None)
        self._room_in = wire.room_in
        self._is_non_finite_unfit = wire.non_finite_output == "allow"
        self._cut_last = _Cut((), b"", 0)

    def result(self, prediction: Prediction) -> Message:
        """The answer to a request that the model answered.

        Raises `Reject` if the encoding cannot express it, or if it is certainly too large for its topic.
        """
        request = prediction[0]
        reply, record = request.reply, request.record
        headers, value = self._body(prediction, reply)
        _address(headers, record, reply)
        topic, chosen = reply.to or self._to
        # One per record: this is 0.1 µs faster than the class's own constructor.
        return tuple.__new__(Message, (topic, record.key, value, headers, record.partition.number, chosen))

    def _body(self, prediction: Prediction, reply: Reply) -> tuple[list[Header], bytes]:
        headers = [_CONTENT_TYPE[reply.content_type], _OK, self._versions[prediction[0].model]]
        if reply.content_type == OCTETS and not reply.outputs:
            if reply.states_rows:
                headers += self._statement(prediction)
            return headers, self._rows(prediction)
        model = prediction[0].model
        outputs = chosen(self._signatures[model], prediction.outputs, reply)
        return headers, self._oip(model, outputs, reply, headers)

    def _statement(self, prediction: Prediction) -> Iterable[Header]:
        """The headers with the rows' datatype and number: a reader with another signature would misread the rows."""
        request, run, start, stop, _ = prediction
        rows = (len(run[0]) if stop is None else stop) - start
        (spec,) = self._signatures[request.model].outputs
        return (DATATYPE, spec.datatype.encode()), (ROWS, b"%d" % rows)

    def rows_of_run(self, run: Run, prediction: Prediction) -> MessageRun | None:
        """The answers to the records of a run, in order, each as `result` would write it. Only their ends differ.

        None if they do not all go to one topic.
        """
        topics, chosen = self._places(run)
        if len(topics) > 1:
            return None
        _, outputs, start, _, _ = prediction
        rows = self._rows(prediction)
        length = len(rows) // len(run.records)
        same, value = self._body(Prediction(run, outputs, start, start + run.rows_each), run.reply)
        assert value.endswith(rows[:length])
        head = value[: len(value) - length]
        values = [rows[at * length : (at + 1) * length] for at in range(len(run.records))]
        if head:
            values = [head + value for value in values]
        keys = [record.key for record in run.records]
        return MessageRun(topics.pop(), keys, values, _headers_of_run(run, same), run.record.partition.number, chosen)

    def _places(self, run: Run) -> tuple[set[str], Sequence[int | None]]:
        """The topics of a run's answers, and the partition of each; no partitions if none was chosen, as is usual."""
        are_alike = run.replies.count(run.reply) == len(run.replies)
        wanted = {run.reply.to} if are_alike else {reply.to for reply in run.replies}
        if wanted == {None}:
            return {self._to.topic}, ()
        topics = {(to or self._to).topic for to in wanted}
        return topics, [(reply.to or self._to).partition for reply in run.replies]

    def _rows(self, prediction: Prediction) -> bytes:
        """The rows of the only output, cut from the bytes of the whole run, which are made once for all requests."""
        _, run, start, stop, _ = prediction
        if stop is None or run[0].nbytes > _MOST_KEPT:
            return to_bytes(prediction.outputs[0])
        if run is not self._cut_last.run:
            self._cut_last = _Cut(run, to_bytes(run[0]), run[0].nbytes // len(run[0]))
        _, rows, row_bytes = self._cut_last
        return rows[start * row_bytes : stop * row_bytes]

    def error(self, rejection: Rejection) -> Message:
        """The error answer to a request that gets no result."""
        record, code, message, reply, _ = rejection
        content_type, write = _error_writer(reply)
        headers = [_CONTENT_TYPE[content_type], _ERROR, self._first_version, _CODE[code]]
        _address(headers, record, reply)
        topic, chosen = reply.to or self._to
        value = write(readable(message), reply.body_id)
        return Message(topic, record.key, value, headers, record.partition.number, chosen)

    def _oip(self, model: ModelKey, outputs: list[Output], reply: Reply, headers: list[Header]) -> bytes:
        if reply.content_type == PROTOBUF:
            from worker.codecs.encodings import oip_protobuf  # noqa: PLC0415  # see its docstring

            return oip_protobuf.answer(model, outputs, reply.body_id)
        self._check_size(outputs, (reply.to or self._to).topic)
        if self._is_non_finite_unfit:
            _check_finite(outputs)
        head = oip_json.answer(model, outputs, reply.body_id)
        if reply.content_type == JSON:
            return head
        headers.append((HEAD_LENGTH, b"%d" % len(head)))
        return b"".join([head, *(output.raw for output in outputs if output.raw is not None)])

    def _check_size(self, outputs: Sequence[Output], topic: str) -> None:
        """Raises `Reject` for JSON that cannot fit: to write a hundred megabytes would stop the loop for seconds."""
        least = sum([2 * output.array.size for output in outputs if output.raw is None])  # a digit and a comma for each
        if least > (limit := self._room_in(topic)):
            why = f"the answer takes more than {least} bytes, topic {topic} at most {limit}"
            raise Reject(why, Code.RESOURCE_EXHAUSTED)


def _error_writer(reply: Reply) -> tuple[str, Callable[[str, str | None], bytes]]:
    """The content type of an error's body, and the function that writes it."""
    if reply.content_type != PROTOBUF:
        return JSON, oip_json.error
    from worker.codecs.encodings import oip_protobuf  # noqa: PLC0415  # see its docstring

    return PROTOBUF, oip_protobuf.error


def _headers_of_run(run: Run, same: Sequence[Header]) -> list[list[Header]]:
    """The headers of each answer of a run; all begin with the headers `same`."""
    if not run.reply.echo and run.reply.request_id is None and run.replies.count(run.reply) == len(run.replies):
        source = f"{run.record.partition}/".encode()
        return [[*same, ("source", b"%b%d" % (source, record[1]))] for record in run.records]
    headers = [[*same] for _ in run.records]
    for each, record, reply in zip(headers, run.records, run.replies, strict=True):
        _address(each, record, reply)
    return headers


def _address(headers: list[Header], record: Record, reply: Reply) -> None:
    """Add the headers by which a requester recognises its answer."""
    source = record.source
    headers.append(("source", source.encode()))
    _, request_id, _, _, echo, _, _ = reply
    if request_id is not None and request_id != source:
        headers.append(("request-id", request_id.encode()))
    if echo:
        headers += echo


def _check_finite(outputs: list[Output]) -> None:
    for spec, array, raw in outputs:
        if raw is None and spec.is_float and not np.isfinite(array).all():
            raise Reject(f"output {spec.name}: NaN or infinity has no form in JSON; accept another type", Code.INTERNAL)


def readable(message: str) -> str:
    """An error's message made fit to be sent: not too long, and without the half characters of a quoted value."""
    whole = message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 3]}..."
    return whole.encode("utf-8", "backslashreplace").decode()

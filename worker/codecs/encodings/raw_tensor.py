"""Reads tensors from bytes: plain rows of a model's only required input, or the binary-data form, for every model.

    rows          row · row · row …                               content-type: application/octet-stream
    binary-data   {"inputs": [...]} · tensor · tensor …           and Inference-Header-Content-Length, which is
                  ╰─ JSON head ──╯                                the length of the head

Numbers are little-endian and row-major, and are never parsed one by one. Rows are the record's value itself; tensors of
the binary-data form are views of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import add

from worker.codecs.encodings.elements import check_booleans
from worker.codecs.encodings.oip import check_inline, memory
from worker.codecs.request_headers import NOTHING_STATED, Envelope, StatedRows
from worker.codecs.wire_contract import DATATYPE, HEAD_LENGTH, JSON, OCTETS, ROWS
from worker.core.failures import Reject
from worker.core.records import Record, Reply, Request, Tensor
from worker.core.runs import Run, run_of
from worker.core.tensors.signature import Judged, Signature
from worker.core.tensors.specs import NamedTensor

_NUMPY = b"\x93NUMPY"  # the beginning of a file's head, which has 128 bytes
_OBJECT = re.compile(rb'\{\s*"[\x20-\x7e\s]{12,}')
_ODD_BEGINNINGS = frozenset({_NUMPY[0], ord("{")})  # one row in 128 begins so, too


class PlainRows:
    """Reads plain rows: rows of the only required input, answered by rows of the only output. Knows one model.

    Bytes do not say what they are: one row of FP64 is as long as two of FP32, and would get two answers. So the headers
    `datatype` and `rows` are checked; with `must_state` they must be there.
    """

    def __init__(self, signature: Signature, *, must_state: bool = False) -> None:
        self._signature = signature
        self._must_state = must_state
        self._model = signature.key
        spec = signature.raw_input
        self._shapes: tuple[tuple[int, ...], ...] = (tuple(d for d in spec.dims if d is not None),) if spec else ()
        self._boolean = spec if spec and spec.datatype == "BOOL" else None
        self._is_wide = spec is not None and spec.element_bytes > 1
        # Several outputs, or strings, need the binary-data form.
        is_plain = len(signature.outputs) == 1 and not signature.outputs[0].is_text
        self._binary = () if is_plain else tuple(wanted._replace(binary=True) for wanted in signature.all_inline)
        self._is_whole = len(signature.inputs) == 1  # the model takes nothing but rows
        # True if rows are answered by rows, and need no check one by one.
        self.may_run = spec is not None and is_plain and self._boolean is None and self._is_whole

    def request(self, record: Record, value: bytes, envelope: Envelope) -> Request:
        """The request that the value's rows make. Raises `Reject` if they are not a whole number of rows."""
        assert envelope.rows is not None
        rows = self._count(len(value), envelope.rows)
        if value[0] in _ODD_BEGINNINGS and self._may_be_file(envelope.rows) and _is_file(value):
            spec = self._signature.raw_input
            assert spec is not None
            raise Reject(f"input {spec.name}: expected rows of {spec.row_bytes} bytes ({spec}), got a text or a file")
        if self._boolean is not None:
            check_booleans(self._boolean, value)
        shapes, size = self._shapes, len(value)
        tensors: tuple[Tensor, ...] = (value,)
        if not self._is_whole:
            _, shapes, tensors = judged = self._completed(rows, value)
            size = memory(judged)
        size += len(record.key or b"") + envelope.size
        reply, timeout, state = self._reply(envelope.reply), envelope.timeout, envelope.state
        return Request(record, rows, tensors, shapes, reply, size, self._model, timeout=timeout, state=state)

    def _completed(self, rows: int, value: bytes) -> Judged:
        """The rows, completed by the model's other inputs, which have defaults."""
        (spec,), (dims,) = self._signature.required, self._shapes
        return self._signature.judge([NamedTensor(spec.name, spec.datatype, (rows, *dims), value)])

    def _count(self, length: int, stated: StatedRows) -> int:
        """How many rows `length` bytes are. Raises `Reject` if they are no rows, or if the headers say otherwise."""
        if stated is NOTHING_STATED and not self._must_state:
            return self._signature.raw_rows(length)
        spec = self._signature.raw_input
        if spec is not None and stated.datatype not in {None, spec.datatype}:
            raise Reject(
                f"input {spec.name}: expected {spec.datatype}, got {stated.datatype!r} in the header {DATATYPE}: "
                "convert the elements before they are sent"
            )
        rows = self._signature.raw_rows(length)
        assert spec is not None
        if stated.rows is not None and stated.rows != rows:
            raise Reject(
                f"input {spec.name}: expected {stated.rows} rows (header {ROWS}), got {length} bytes, "
                f"{rows} rows of {spec}"
            )
        if self._must_state and None in stated:
            raise Reject(
                f"plain rows must say here what they are; if these are rows of {spec}, send the headers "
                f"{DATATYPE}: {spec.datatype} and {ROWS}: {rows}"
            )
        return rows

    def _may_be_file(self, stated: StatedRows) -> bool:
        """True if the value may be a file: no header says that it is rows, and rows are not bytes, so no text."""
        return stated is NOTHING_STATED and self._is_wide

    def may_begin(self, length: int, envelope: Envelope) -> bool:
        """True if a value of `length` bytes may be the first of a run."""
        if envelope.rows is None or envelope.fault is not None or envelope.reply.content_type != OCTETS:
            return False
        return self._counted(length, envelope.rows) is not None

    def _counted(self, length: int, stated: StatedRows) -> int | None:
        """How many rows `length` bytes are; None if they are no rows, or if the headers say otherwise."""
        try:
            return self._count(length, stated)
        except Reject:
            return None

    def run(self, records: Sequence[Record], values: Sequence[bytes], envelopes: Sequence[Envelope]) -> Run | None:
        """The run of these records, whose values have one length; None if they are not rows answered by rows.

        `envelopes` holds one envelope per record, or one for all.
        """
        # To take all fields at once is twice as fast as to ask each envelope.
        _, stated, replies, _, _, sizes_of_headers, faults, timeouts, states = zip(*envelopes, strict=True)
        if any(faults) or any([reply.content_type != OCTETS for reply in replies]):  # noqa: C419
            return None
        if stated[0] is None or stated.count(stated[0]) < len(stated):  # then their answers differ in their headers
            return None
        length = len(values[0])
        rows = self._counted(length, stated[0])
        if rows is None or (self._may_be_file(stated[0]) and any(map(_is_file, _odd(values)))):
            return None
        if any(states):
            return None
        around = [length + size for size in sizes_of_headers]
        if len(envelopes) < len(records):
            replies, around, timeouts = replies * len(records), around * len(records), timeouts * len(records)
        keys = [record.key or b"" for record in records]
        sizes = list(map(add, map(len, keys), around))
        return run_of(
            records, values, rows, self._shapes, replies, sizes, self._model, timeouts if any(timeouts) else ()
        )

    def _reply(self, reply: Reply) -> Reply:
        """The reply with all outputs, as rows if possible. Raises `Reject` if the accepted type cannot express them."""
        if reply.content_type == OCTETS:
            return reply._replace(outputs=self._binary) if self._binary else reply
        if reply.content_type == JSON:
            check_inline(self._signature, self._signature.all_inline)
        return reply


def _odd(values: Sequence[bytes]) -> Sequence[bytes]:
    """The values that begin like a file. It takes 0.05 µs for each (2026-11)."""
    return [value for value in values if value[0] in _ODD_BEGINNINGS]


def _is_file(value: bytes) -> bool:
    """True if a value, which is as long as some rows, is JSON or a file of numpy.

    By chance 16 bytes of numbers, of more than a byte each, are all printable and between these brackets once in 10^13
    times.
    """
    is_json = _OBJECT.fullmatch(value[:256]) is not None and value[-16:].rstrip()[-1:] == b"}"
    return is_json or value.startswith(_NUMPY)


def split(value: bytes, head_length: int) -> tuple[memoryview, memoryview]:
    """The JSON head and the tensors after it. Raises `Reject` if the value is shorter than its head."""
    if head_length > len(value):
        raise Reject(f"{HEAD_LENGTH}: {head_length} bytes announced, the value has {len(value)}")
    view = memoryview(value)
    return view[:head_length], view[head_length:]

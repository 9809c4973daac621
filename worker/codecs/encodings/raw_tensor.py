"""Reads plain rows: the rows of a model's only required input, little-endian and row-major, the value itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from worker.codecs.encodings.elements import check_booleans
from worker.codecs.encodings.oip import Fault, Good, Judge, Known, Statement, check_inline
from worker.codecs.request_headers import NOTHING_STATED, HeaderForm, StatedRows
from worker.codecs.wire_contract import DATATYPE, JSON, OCTETS, ROWS
from worker.core.failures import Reject
from worker.core.records import ReplyForm, Tensor
from worker.core.tensors.specs import NamedTensor

_NUMPY = b"\x93NUMPY"  # the beginning of a file's head, which has 128 bytes
_OBJECT = re.compile(rb'\{\s*"[\x20-\x7e\s]{12,}')
_ODD_BEGINNINGS = frozenset({_NUMPY[0], ord("{")})  # one row in 128 begins so, too


class PlainRows:
    """Reads plain rows: rows of the only required input, answered by rows of the only output. Knows one model.

    Bytes do not say what they are: one row of FP64 is as long as two of FP32, and would get two answers. So the headers
    `datatype` and `rows` are checked; with `must_state` they must be there. Values of one length under headers of one
    form say the same, so only the first is judged.
    """

    def __init__(self, judge: Judge, *, must_state: bool = False) -> None:
        self._judge = judge
        self._signature = signature = judge.first  # plain rows name no model
        self._must_state = must_state
        spec = signature.raw_input
        self._dims: tuple[int, ...] = tuple(d for d in spec.dims if d is not None) if spec else ()
        self._boolean = spec if spec and spec.datatype == "BOOL" else None
        self._is_wide = spec is not None and spec.element_bytes > 1
        # Several outputs, or strings, need the binary-data form.
        is_plain = len(signature.outputs) == 1 and not signature.outputs[0].is_text
        self._binary = () if is_plain else tuple(wanted._replace(binary=True) for wanted in signature.all_inline)
        self._is_whole = len(signature.inputs) == 1  # the model takes nothing but rows
        self._known: Known[tuple[HeaderForm, int], Statement] = Known()

    def body_id(self, form: HeaderForm, value: bytes) -> str | None:  # noqa: ARG002  # rows have none
        return None

    def read(self, form: HeaderForm, values: Sequence[bytes]) -> Sequence[Good | Fault]:
        length = len(values[0])
        statement = self._known.get((form, length))
        # It takes 0.1 µs for each value to find that all are alike, and 0.5 to look at each alone.
        if statement is None or not self._is_whole or self._boolean is not None or set(map(len, values)) != {length}:
            return [self._read(form, value) for value in values]
        if self._may_be_file(form.rows) and any(map(_is_file, _odd(values))):
            return [self._read(form, value) for value in values]
        kind = statement.kinds[form]
        return [tuple.__new__(Good, (statement, kind, (value,), None)) for value in values]

    def _read(self, form: HeaderForm, value: bytes) -> Good | Fault:
        try:
            statement = self._known.get((form, len(value))) or self._stated(form, value)
            tensors: tuple[Tensor, ...] = (self._checked(form, value),)
        except Reject as no:
            return Fault(no.code, no.message, None)
        return Good(statement, statement.kinds[form], tensors if self._is_whole else statement.arranged(tensors), None)

    def _checked(self, form: HeaderForm, value: bytes) -> bytes:
        """The value. Raises `Reject` if it is a file, or no booleans where booleans are expected."""
        if value[0] in _ODD_BEGINNINGS and self._may_be_file(form.rows) and _is_file(value):
            spec = self._signature.raw_input
            assert spec is not None
            raise Reject(f"input {spec.name}: expected rows of {spec.row_bytes} bytes ({spec}), got a text or a file")
        if self._boolean is not None:
            check_booleans(self._boolean, value)
        return value

    def _stated(self, form: HeaderForm, value: bytes) -> Statement:
        """What a value of this length says. Raises `Reject` if it is no rows, or if no answer is possible."""
        assert form.rows is not None
        rows = self._count(len(value), form.rows)
        self._checked(form, value)  # what it is goes before what is wrong with it
        (spec,) = self._signature.required
        given = [NamedTensor(spec.name, spec.datatype, (rows, *self._dims), memoryview(value))]
        statement, _ = self._judge.stated(self._signature, given)
        statement.kinds[form] = self._judge.kind(self._signature, self._reply(form.reply), form)
        self._known.learn((form, len(value)), statement)
        return statement

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

    def _may_be_file(self, stated: StatedRows | None) -> bool:
        """True if the value may be a file: no header says that it is rows, and rows are not bytes, so no text."""
        return stated is NOTHING_STATED and self._is_wide

    def _reply(self, reply: ReplyForm) -> ReplyForm:
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

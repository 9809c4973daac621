"""Reads plain rows: the rows of a model's only required input, little-endian and row-major, the value itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from worker.codecs.answer_forms import AskedAnswer
from worker.codecs.encodings.elements import check_booleans
from worker.codecs.encodings.oip import Claim, Encoding, Fault, Good, Judge, Part, Question, Reads, Statement
from worker.codecs.known import Known
from worker.codecs.request_headers import NOTHING_STATED, HeaderForm, StatedRows
from worker.codecs.wire_contract import DATATYPE, ROWS
from worker.core.failures import Reject
from worker.core.records import Record

_NUMPY = b"\x93NUMPY"  # the beginning of a file's head, which has 128 bytes
_OBJECT = re.compile(rb'\{\s*"[\x20-\x7e\s]{12,}')
_ODD_BEGINNINGS = frozenset({_NUMPY[0], ord("{")})  # one row in 128 begins so, too


class PlainRows(Encoding[tuple[HeaderForm, bytes]]):
    """Reads plain rows: rows of the only required input, answered by rows of the only output. Knows one model.

    Bytes do not say what they are: one row of FP64 is as long as two of FP32, and would get two answers. So the headers
    `datatype` and `rows` are checked; with `must_state` they must be there. Values of one length under headers of one
    form say the same, so only the first is judged.
    """

    def __init__(self, judge: Judge, *, must_state: bool = False) -> None:
        super().__init__(judge, 0)
        self._signature = signature = judge.first  # plain rows name no model
        self._must_state = must_state
        spec = signature.raw_input
        self._boolean = spec if spec and spec.datatype == "BOOL" else None
        self._is_wide = spec is not None and spec.element_bytes > 1
        self._is_whole = len(signature.inputs) == 1  # the model takes nothing but rows
        self._known: Known[tuple[HeaderForm, int], Statement] = Known()

    def read(self, forms: Sequence[HeaderForm], values: Sequence[bytes], records: Sequence[Record] = ()) -> Reads:
        """Read values, all at once if they say the same: that takes 0.1 µs for each, and to look at each alone 0.7."""
        form, length, count = forms[0], len(values[0]), len(values)
        statement = self._known.get((form, length))
        if statement is None or not self._is_whole or self._boolean is not None or set(map(len, values)) != {length}:
            return super().read(forms, values, records)
        odd = [value for value in values if value[0] in _ODD_BEGINNINGS] if self._may_be_file(form.rows) else ()
        if forms.count(form) < count or (odd and any(map(_is_file, odd))):
            return super().read(forms, values, records)
        return [Part(statement.kinds[form], range(count), [statement] * count, [values], ())], []

    def _read(self, form: HeaderForm, value: bytes) -> Good | Fault:
        statement = self._known.get((form, len(value)))
        try:
            self._check(form, value)
        except Reject:
            statement = None
        if statement is None:
            return self._judged(form, value)
        return statement, (value,) if self._is_whole else statement.arranged((value,)), None

    def _parsed(self, form: HeaderForm, value: bytes) -> tuple[tuple[HeaderForm, bytes], object]:
        return (form, value), None  # rows have no id

    def _question(self, held: tuple[HeaderForm, bytes]) -> Question:
        form, value = held
        assert form.rows is not None
        rows = self._count(len(value), form.rows)
        self._check(form, value)  # what it is goes before what is wrong with it
        (spec,) = self._signature.required
        claim = Claim(spec.name, spec.datatype, [rows, *[d or 0 for d in spec.dims]], lambda *_: memoryview(value))
        return Question(None, None, [claim], AskedAnswer(is_rows=True))

    def _learn(self, form: HeaderForm, value: bytes, held: tuple[HeaderForm, bytes], good: Good) -> None:  # noqa: ARG002  # one for all encodings
        self._known.learn((form, len(value)), good[0])

    def _check(self, form: HeaderForm, value: bytes) -> None:
        """Raises `Reject` if the value is a file, or no booleans where booleans are expected."""
        if value[0] in _ODD_BEGINNINGS and self._may_be_file(form.rows) and _is_file(value):
            spec = self._signature.raw_input
            assert spec is not None
            raise Reject(f"input {spec.name}: expected rows of {spec.row_bytes} bytes ({spec}), got a text or a file")
        if self._boolean is not None:
            check_booleans(self._boolean, value)

    def _count(self, length: int, stated: StatedRows) -> int:
        """The number of rows in these bytes. Raises `Reject` if they are no rows, or the headers say otherwise."""
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


def _is_file(value: bytes) -> bool:
    """True if a value, which is as long as some rows, is JSON or a file of numpy.

    By chance 16 bytes of numbers, of more than a byte each, are all printable and between these brackets once in 10^13
    times.
    """
    is_json = _OBJECT.fullmatch(value[:256]) is not None and value[-16:].rstrip()[-1:] == b"}"
    return is_json or value.startswith(_NUMPY)

"""Reads the binary-data form: a JSON head, and the tensors behind it.

    {"inputs": [...]} · tensor · tensor …           content-type: application/octet-stream (or application/json)
    ╰─ JSON head ──╯                                and Inference-Header-Content-Length, the length of the head

Numbers are little-endian and row-major, and are never parsed one by one: tensors are views of the value. The head says
everything else, so equal heads are compared, and only the first is parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from worker.codecs.encodings.elements import from_bytes
from worker.codecs.encodings.oip import Fault, Good, Judge, Known, Statement, checked_id
from worker.codecs.encodings.oip_json import Object, document_of, question_of
from worker.codecs.request_headers import HeaderForm
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.failures import Reject
from worker.core.records import Tensor


class _Head(NamedTuple):
    """What a head says whose tensors are all behind it, and where, in values of one length."""

    statement: Statement
    length: int  # of the whole value
    tensors: Sequence[slice]  # of the whole value, in the order of the claims
    is_plain: bool  # the tensors are the bytes themselves, in the model's order


class BinaryData:
    """Reads requests in the binary-data form. Owns the heads that it has met. A head with an id is not met again."""

    def __init__(self, judge: Judge, most_bytes: int) -> None:
        """`most_bytes`: of a head."""
        self._judge = judge
        self._most_bytes = most_bytes
        self._heads: Known[bytes, _Head] = Known()

    def read(self, form: HeaderForm, values: Sequence[bytes]) -> Sequence[Good | Fault]:
        return [self._read(form, value) for value in values]

    def body_id(self, form: HeaderForm, value: bytes) -> str | None:
        return checked_id(self._taken_apart(form, value)[0].get("id"))

    def _read(self, form: HeaderForm, value: bytes) -> Good | Fault:
        head = self._heads.get(value[: form.head_length])
        if head is None or head.length != len(value):
            return self._parsed(form, value)
        statement, _, slices, is_plain = head
        view = memoryview(value)
        tensors: tuple[Tensor, ...] = tuple([view[at] for at in slices])
        if not is_plain:
            try:
                claims = zip(tensors, statement.claims, strict=True)
                tensors = statement.arranged([from_bytes(tensor, *claim) for tensor, claim in claims])  # type: ignore[arg-type]  # a view
            except Reject as no:
                return Fault(no.code, no.message, None)
        return self._judge.good(form, statement, tensors, None)

    def _parsed(self, form: HeaderForm, value: bytes) -> Good | Fault:
        body_id = None
        try:
            document, tail = self._taken_apart(form, value)
            body_id = checked_id(document.get("id"))
            statement, tensors = self._judge.judge(question_of(document, tail))
        except Reject as no:
            return Fault(no.code, no.message, body_id)
        good = self._judge.good(form, statement, tensors, body_id)
        if body_id is None and isinstance(good, Good):
            self._learn(statement, document["inputs"], value, len(value) - len(tail))
        return good

    def _taken_apart(self, form: HeaderForm, value: bytes) -> tuple[Object, memoryview]:
        """The head, and the bytes behind it. Raises `Reject` if there is no such head."""
        assert form.head_length is not None
        head, tail = split(value, form.head_length)
        return document_of(head, self._most_bytes, f"the head of {len(head)} bytes ({HEAD_LENGTH})"), tail

    def _learn(self, statement: Statement, inputs: Sequence[dict[str, dict[str, int]]], value: bytes, at: int) -> None:
        slices, start = [], at
        for entry in inputs:
            size = (entry.get("parameters") or {}).get("binary_data_size")
            if size is None:
                return
            slices.append(slice(start, start := start + size))
        is_plain = statement.is_in_order and not any(spec.needs_a_look for spec, _ in statement.claims)
        self._heads.learn(value[:at], _Head(statement, len(value), slices, is_plain), at)


def split(value: bytes, head_length: int) -> tuple[memoryview, memoryview]:
    """The JSON head and the tensors after it. Raises `Reject` if the value is shorter than its head."""
    if head_length > len(value):
        raise Reject(f"{HEAD_LENGTH}: {head_length} bytes announced, the value has {len(value)}")
    view = memoryview(value)
    return view[:head_length], view[head_length:]

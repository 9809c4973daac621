"""Reads the binary-data form: a JSON head, and the tensors behind it.

    {"inputs": [...]} · tensor · tensor …           content-type: application/octet-stream (or application/json)
    ╰─ JSON head ──╯                                and Inference-Header-Content-Length, the length of the head

Numbers are little-endian and row-major, and are never parsed one by one: tensors are views of the value. The head says
everything else, so equal heads are compared, and only the first is parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from worker.codecs.encodings.oip import Encoding, Fault, Good, Judge, Known, Question, Statement
from worker.codecs.encodings.oip_json import Object, document_of, question_of
from worker.codecs.request_headers import HeaderForm
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.failures import Reject


class _Head(NamedTuple):
    """What a head says whose tensors are all behind it, and where, in values of one length."""

    statement: Statement
    length: int  # of the whole value
    tensors: Sequence[slice]  # of the whole value, in the model's order if `is_plain`, else of the claims
    is_plain: bool  # the tensors are the bytes themselves


class BinaryData(Encoding[tuple[Object, memoryview]]):
    """Reads requests in the binary-data form. Owns the heads that it has met. A head with an id is not met again."""

    def __init__(self, judge: Judge, most_bytes: int) -> None:
        super().__init__(judge, most_bytes)
        self._heads: Known[bytes, _Head] = Known()

    def _read(self, form: HeaderForm, value: bytes) -> Good | Fault:
        head = self._heads.get(value[: form.head_length])
        if head is None or head.length != len(value):
            return self._judged(form, value)
        statement, _, slices, is_plain = head
        view = memoryview(value)
        tensors = tuple([view[at] for at in slices])
        try:
            return statement, tensors if is_plain else statement.of_bytes(tensors), None
        except Reject:
            return self._judged(form, value)

    def _parsed(self, form: HeaderForm, value: bytes) -> tuple[Object, memoryview]:
        """The head, and the bytes behind it. Raises `Reject` if there is no such head."""
        assert form.head_length is not None
        head, tail = split(value, form.head_length)
        return document_of(head, self._most_bytes, f"the head of {len(head)} bytes ({HEAD_LENGTH})"), tail

    def _id_of(self, held: tuple[Object, memoryview]) -> object:
        return held[0].get("id")

    def _question(self, held: tuple[Object, memoryview]) -> Question:
        return question_of(*held)

    def _learn(self, value: bytes, held: tuple[Object, memoryview], good: Good) -> None:
        statement, (document, tail) = good[0], held
        sizes: list[Any] = [(entry.get("parameters") or {}).get("binary_data_size") for entry in document["inputs"]]
        if document.get("id") is not None or None in sizes:
            return
        at = len(value) - len(tail)
        starts = [at + sum(sizes[:before]) for before in range(len(sizes))]
        slices = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        places = statement.places()
        in_order = slices if places is None else [slices[place] for place in places]
        self._heads.learn(value[:at], _Head(statement, len(value), in_order, places is not None), at)


def split(value: bytes, head_length: int) -> tuple[memoryview, memoryview]:
    """The JSON head and the tensors after it. Raises `Reject` if the value is shorter than its head."""
    if head_length > len(value):
        raise Reject(f"{HEAD_LENGTH}: {head_length} bytes announced, the value has {len(value)}")
    view = memoryview(value)
    return view[:head_length], view[head_length:]

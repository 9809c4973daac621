"""Reads the binary-data form: a JSON head, and the tensors behind it.

    {"inputs": [...]} · tensor · tensor …           content-type: application/octet-stream (or application/json)
    ╰─ JSON head ──╯                                and Inference-Header-Content-Length, the length of the head

Numbers are little-endian and row-major, and are never parsed one by one: tensors are views of the value.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

from worker.codecs.encodings.layouts import ComparedEncoding, Slices
from worker.codecs.encodings.oip import Good, Question
from worker.codecs.encodings.oip_json import Object, document_of, question_of
from worker.codecs.request_headers import HeaderForm
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.failures import Reject


class BinaryData(ComparedEncoding[tuple[Object, memoryview]]):
    """Reads requests in the binary-data form. A head with an id is not met again."""

    has_views = True

    def _parsed(self, form: HeaderForm, value: bytes) -> tuple[tuple[Object, memoryview], object]:
        """The head and the bytes behind it, and the id. Raises `Reject` if there is no such head."""
        assert form.head_length is not None
        head, tail = split(value, form.head_length)
        document = document_of(head, self._most_bytes, f"the head of {len(head)} bytes ({HEAD_LENGTH})")
        return (document, tail), document.get("id")

    def _question(self, held: tuple[Object, memoryview]) -> Question:
        return question_of(*held)

    def _slices(self, value: bytes, held: tuple[Object, memoryview], good: Good) -> Slices | None:  # noqa: ARG002  # one for all
        document, tail = held
        sizes: list[Any] = [(entry.get("parameters") or {}).get("binary_data_size") for entry in document["inputs"]]
        if document.get("id") is not None or None in sizes:
            return None
        return Slices([slice(*ends) for ends in pairwise(accumulate(sizes, initial=len(value) - len(tail)))])


def split(value: bytes, head_length: int) -> tuple[memoryview, memoryview]:
    """The JSON head and the tensors after it. Raises `Reject` if the value is shorter than its head."""
    if head_length > len(value):
        raise Reject(f"{HEAD_LENGTH}: {head_length} bytes announced, the value has {len(value)}")
    view = memoryview(value)
    return view[:head_length], view[head_length:]

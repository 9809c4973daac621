"""Framed JSON records."""

from __future__ import annotations

import pytest

from worker.codecs.records.framing import Frame
from worker.codecs.records.json_schema import JsonRecords
from worker.core.failures import Reject
from worker.core.schemas import RegisteredSchema

READER = JsonRecords(RegisteredSchema(7, None, "JSON", "{}"), [("a",)])


def test_the_text_of_a_record_is_what_follows_the_frame() -> None:
    """It is not copied."""
    assert READER.text(b"12345{}", Frame(7, 5)).tobytes() == b"{}"


def test_all_fields_of_an_object_are_read() -> None:
    """Types are judged by the mapping, and not by the schema."""
    assert READER.read(b'{"a":1,"b":[true,null]}', Frame(7, 0)) == {"a": 1, "b": [True, None]}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"a":NaN}', b'{"a":"\xff"}', b'{"a":' * 10_000, b"\xff\xfe{}"])
def test_other_texts_are_refused(body: bytes) -> None:
    """The message names the encoding and the schema."""
    with pytest.raises(Reject, match=r"^the record: expected a JSON object \(JSON Schema, schema 7\)$"):
        READER.read(body, Frame(7, 0))

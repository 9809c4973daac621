"""The error for a value that is no request names what the value looks like and the cure; it guesses nothing else."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.unit.codecs.builders import (
    AS_JSON,
    AS_PROTOBUF,
    AS_ROWS,
    as_json,
    codecs,
    document,
    floats,
    record,
    rejection,
)
from worker.codecs.looks_like import looks_like
from worker.codecs.wire_contract import JSON, OCTETS
from worker.core.failures import Code

REQUEST = json.dumps(document())
COMPRESSED = "send the value as it is, and let the producer compress (compression.type)"
LONG = [[1, 2, 3]] * 3000


@pytest.mark.parametrize("as_", [AS_JSON, AS_PROTOBUF])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (gzip.compress(REQUEST.encode()), f"gzip: {COMPRESSED}"),
        (REQUEST.encode("utf-16-le"), "UTF-16: write it as UTF-8"),
        (b"\0\0\0\0\7" + REQUEST.encode(), "the framing of Confluent serializers, a 0 and the schema id 7"),
        (json.dumps(REQUEST).encode(), "a JSON string with JSON in it"),
    ],
)
def test_bytes_are_known_by_their_beginning(as_: tuple[str, bytes], value: bytes, said: str) -> None:
    """The content type does not matter."""
    refused = rejection(codecs(), record(value, as_))

    assert f"; it looks like {said}" in refused.message
    assert "'" not in refused.message.partition("; it looks like ")[2], "the log leaves out what is in quotes"


@pytest.mark.parametrize("padding", [{}, {"more": LONG}], ids=["small", "large"])
def test_another_protocol_is_known_by_its_members(padding: dict[str, Any]) -> None:
    """For a large value, its first bytes are enough."""
    message = rejection(codecs(), as_json({"instances": [[1, 2, 3]], **padding})).message

    assert "KServe version 1 or TensorFlow Serving: send version 2, `inputs`" in message
    assert "'" not in message.partition("; it looks like ")[2], "the log leaves out what is in quotes"


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (
            {"payment_id": 1, "amount": 2, "currency": 3, "at": 4, "by": 5},
            "a JSON object with the fields 'payment_id', 'amount', 'currency' and 2 more",
        ),
        ({"a@example.org": 1, "b": 2}, "a JSON object with the fields 'b'"),
        ({"n" * 60: 1}, f"'{'n' * 40}'"),
    ],
)
def test_other_objects_are_told_by_three_of_their_fields(held: dict[str, Any], said: str) -> None:
    """Keys that are no identifiers may be someone's address, so they are not shown."""
    assert rejection(codecs(), as_json(held)).message.endswith(said)


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (b'{"inputs": [{"name": "x"}]}', JSON),
        (b"{}", JSON),
        (b'{"a@b": 1}', JSON),
        (b'{"payment', JSON),
        (b"[1, 2, 3]", JSON),
        (b"\x00\x00", JSON),
        (floats(0.5, 1, 2, 3), OCTETS),
        (b"", JSON),
    ],
)
def test_a_value_that_may_be_a_request_is_not_guessed_at(value: bytes, content_type: str) -> None:
    """A value without a sign is not guessed at either. A row of floats may begin like a schema id."""
    assert looks_like(value, content_type) is None


@pytest.mark.parametrize("as_", [AS_ROWS, AS_PROTOBUF])
def test_a_request_in_json_under_another_content_type_says_so(as_: tuple[str, bytes]) -> None:
    """The length fits no whole number of rows."""
    refused = rejection(codecs(), record(REQUEST.encode() + b" " * (11 - len(REQUEST) % 12), as_))

    assert refused.message.endswith("it looks like JSON: send the header content-type: application/json")


def test_a_content_type_that_is_not_taken_is_explained_by_the_value() -> None:
    """CloudEvents have a content type of their own."""
    event = record(b'{"specversion": "1.0", "type": "t"}', ("content-type", b"application/cloudevents+json"))

    assert "'specversion', 'type'" in rejection(codecs(), event).message


def test_a_record_is_described_without_its_values() -> None:
    """A worker that stops at a topic of others logs the description."""
    assert codecs().description(as_json({"payment_id": 77})) == "a JSON object with the fields 'payment_id'"
    assert codecs().description(record(b"77", AS_JSON)) is None
    assert codecs().description(record(None)) is None


@pytest.mark.parametrize("code", [Code.NOT_FOUND, Code.RESOURCE_EXHAUSTED])
def test_errors_that_say_all_are_left_alone(code: Code) -> None:
    """A wrong model name and too many bytes have nothing to do with the form."""
    most = 10 if code is Code.RESOURCE_EXHAUSTED else 1000
    held = document(model_name="other") if code is Code.NOT_FOUND else {"instances": [1]}

    refused = rejection(codecs(max_request_bytes=most), as_json(held))

    assert refused.code is code
    assert "looks like" not in refused.message

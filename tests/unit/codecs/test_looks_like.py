"""The error for a value that is no request names what it looks like and the cure; nothing else is guessed at."""

from __future__ import annotations

import gzip
import json
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from tests.unit.codecs.builders import (
    AS_JSON,
    AS_PROTOBUF,
    AS_ROWS,
    as_json,
    codecs,
    document,
    floats,
    model,
    record,
    rejection,
    tensor,
)
from worker.codecs.looks_like import looks_like
from worker.codecs.wire_contract import JSON, OCTETS
from worker.core.failures import Code
from worker.core.tensors.specs import TensorSpec

REQUEST = json.dumps(document())
COMPRESSED = "send the value as it is, and let the producer compress (compression.type)"
LONG = [[1, 2, 3]] * 3000


def npy() -> bytes:
    file = BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize("as_", [AS_JSON, AS_PROTOBUF])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (gzip.compress(REQUEST.encode()), f"gzip: {COMPRESSED}"),
        (b"\x28\xb5\x2f\xfd\x04", f"zstd: {COMPRESSED}"),
        (REQUEST.encode("utf-16"), "UTF-16: write it as UTF-8"),
        (REQUEST.encode("utf-16-le"), "UTF-16"),
        (REQUEST.encode("utf-16-be"), "UTF-16"),
        (REQUEST.encode("utf-8-sig"), "UTF-8 behind a byte order mark"),
        (
            b"\0\0\0\0\7" + REQUEST.encode(),
            "the framing of Confluent serializers, a 0 and the schema id 7: use a plain serializer",
        ),
        (b"\0\0\0\0\3abc", "the framing of gRPC, a byte and the length"),
        (npy(), "a file of numpy (.npy): send array.tobytes()"),
        (b"\xac\xed\x00\x05t\x00\x02", "a serialized Java object"),
        (json.dumps(REQUEST).encode(), "a JSON string with JSON in it: it was serialized twice"),
    ],
)
def test_bytes_are_known_by_their_beginning(as_: tuple[str, bytes], value: bytes, said: str) -> None:
    """Whatever they are said to be."""
    refused = rejection(codecs(), record(value, as_))

    assert f"; it looks like {said}" in refused.message
    assert "'" not in refused.message.partition("; it looks like ")[2], "the log leaves out what is in quotes"


@pytest.mark.parametrize("padding", [{}, {"more": LONG}], ids=["small", "large"])
@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({"instances": [[1, 2, 3]]}, "KServe version 1 or TensorFlow Serving: send version 2, `inputs`"),
        ({"signature_name": "a", "instances": [[1]]}, "KServe version 1"),
        ({"dataframe_split": {"columns": ["a"], "data": [[1]]}}, "a dataframe_split of MLflow: send each column"),
        ({"dataframe_records": [{"a": 1}]}, "dataframe_records of MLflow"),
        ({"inputs": {"x": [[1, 2, 3]]}}, "a request of MLflow or TensorFlow Serving"),
        ({"inputs": [[1, 2, 3]]}, "a request of MLflow or TensorFlow Serving"),
        ({"inputs": ["a text"]}, "a request of MLflow or TensorFlow Serving"),
        ({"specversion": "1.0", "type": "t", "source": "s", "data": {}}, "a CloudEvent in structured mode"),
        ({"schema": {"type": "struct"}, "payload": {}}, "set value.converter.schemas.enable=false"),
        ({"inputs": [{"name": "x", "contents": {"fp32Contents": [1]}}]}, "the JSON of protobuf"),
    ],
)
def test_other_protocols_are_known_by_their_members(held: dict[str, Any], padding: dict[str, Any], said: str) -> None:
    """Of a large value its first bytes are looked at."""
    message = rejection(codecs(), as_json({**held, **padding})).message

    assert said in message.partition("; it looks like ")[2]
    assert "'" not in message.partition("; it looks like ")[2], "the log leaves out what is in quotes"


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (
            {"payment_id": 1, "amount": 2, "currency": 3, "at": 4, "by": 5},
            "'payment_id', 'amount', 'currency' and 2 more",
        ),
        ({"payment_id": 1}, "a JSON object with the field 'payment_id'"),
        ({"a@example.org": 1, "b": 2}, "a JSON object with the fields 'b' and 1 more"),
        ({"n" * 60: 1}, f"'{'n' * 40}'"),
    ],
)
def test_other_objects_are_told_by_three_of_their_fields(held: dict[str, Any], said: str) -> None:
    """Keys that are no names may be someone's address."""
    assert rejection(codecs(), as_json(held)).message.endswith(said)


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (REQUEST.encode(), JSON),
        (b'{"inputs": [{"name": "x"}]}', JSON),
        (b'{"inputs": []}', JSON),
        (b"{}", JSON),
        (b'{"a@b": 1}', JSON),
        (b'{"payment', JSON),
        (b"[1, 2, 3]", JSON),
        (b"1,2,3", JSON),
        (b'"text"', JSON),
        (b"\x00\x00", JSON),
        (floats(0.5, 1, 2, 3), OCTETS),
        (b"", JSON),
    ],
)
def test_what_may_be_a_request_is_not_guessed_at(value: bytes, content_type: str) -> None:
    """Nor is what gives no sign. A row of floats may begin as a schema id does."""
    assert looks_like(value, content_type) is None


@pytest.mark.parametrize("as_", [AS_ROWS, AS_PROTOBUF])
def test_a_request_in_json_under_another_content_type_says_so(as_: tuple[str, bytes]) -> None:
    """Where rows of that length are none."""
    refused = rejection(codecs(), record(REQUEST.encode() + b" " * (11 - len(REQUEST) % 12), as_))

    assert refused.message.endswith("it looks like JSON: send the header content-type: application/json")


def test_a_content_type_that_is_not_taken_is_explained_by_the_value() -> None:
    """As CloudEvents have one of their own."""
    event = record(b'{"specversion": "1.0", "type": "t"}', ("content-type", b"application/cloudevents+json"))

    assert "in structured mode" in rejection(codecs(), event).message


def test_what_shows_by_itself_is_not_put_down_to_a_missing_header() -> None:
    """The log has room for a line of 200 characters."""
    refused = rejection(codecs(), record(gzip.compress(REQUEST.encode())))

    assert refused.message == f"the value is not JSON: it is not UTF-8; it looks like gzip: {COMPRESSED}"


def test_a_record_is_described_without_its_values() -> None:
    """For the log of a worker that stops at a topic of others."""
    assert codecs().description(as_json({"payment_id": 77})) == "a JSON object with the field 'payment_id'"
    assert codecs().description(record(b"77", AS_JSON)) is None
    assert codecs().description(record(None)) is None


@pytest.mark.parametrize("code", [Code.NOT_FOUND, Code.RESOURCE_EXHAUSTED])
def test_errors_that_say_all_are_left_alone(code: Code) -> None:
    """Another model's name, and too many bytes, are no matter of form."""
    most = 10 if code is Code.RESOURCE_EXHAUSTED else 1000
    held = document(model_name="other") if code is Code.NOT_FOUND else {"instances": [1]}

    refused = rejection(codecs(max_request_bytes=most), as_json(held))

    assert refused.code is code
    assert "looks like" not in refused.message


@pytest.mark.parametrize(
    ("dims", "shape", "cure"),
    [
        ((3,), [3], "; a single row has the shape [1, 3]"),
        ((None,), [7], "; a single row has the shape [1, 7]"),
        ((3,), [4], ""),
        ((3, 2), [2], ""),
        ((), [], ""),
    ],
)
def test_a_row_without_its_first_dimension_is_named(dims: tuple[int | None, ...], shape: list[int], cure: str) -> None:
    """As `[4]` for `[1, 4]`."""
    asked = as_json(document(inputs=[tensor(shape=shape)]))

    assert rejection(codecs(model(TensorSpec("x", "FP32", dims))), asked).message.endswith(f"got shape {shape}{cure}")

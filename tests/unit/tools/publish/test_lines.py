"""Lines of a file to publish: which form each is, what is published, and by what name its answer will come back."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from worker.core.failures import BadConfiguration
from worker.tools.publish.lines import Publishable, read_line

AS_JSON = (("content-type", b"application/json"),)


def line(**members: Any) -> bytes:
    return json.dumps(members).encode()


def test_a_request_is_published_to_the_byte() -> None:
    """Its spacing and its unknown members included."""
    body = b'{ "inputs" : [],  "parameters": {"x": 1.50} }'

    assert read_line(body) == Publishable(body, None, AS_JSON, None)


def test_a_request_is_named_by_its_id() -> None:
    """As the worker names it, and in the header too: an error found before the body is read knows nothing else."""
    found = read_line(line(inputs=[], id="order-17"))

    assert found.name == b"order-17"
    assert found.headers == (*AS_JSON, ("request-id", b"order-17"))


@pytest.mark.parametrize("odd", [7, "", "x" * 1025, None])
def test_an_id_that_a_worker_passes_over_is_no_name(odd: object) -> None:
    """The answer would not carry it."""
    assert read_line(line(inputs=[], id=odd)).name is None


def test_an_envelope_carries_anything() -> None:
    """Key, headers and a text that is no request."""
    found = read_line(line(key="k", headers={"content-type": "application/json", "gone": None}, value="{ broken"))

    assert found == Publishable(b"{ broken", b"k", (("content-type", b"application/json"), ("gone", None)), None)


def test_an_envelope_carries_bytes() -> None:
    """In base64, wherever text would not do."""
    raw = base64.b64encode(b"\xff\x00").decode()

    found = read_line(line(key_base64=raw, headers_base64={"h": raw}, value_base64=raw))

    assert found == Publishable(b"\xff\x00", b"\xff\x00", (("h", b"\xff\x00"),), None)


@pytest.mark.parametrize(
    ("value", "published"), [(None, None), ("", b""), ({"a": [1]}, b'{"a": [1]}'), ([1, 2], b"[1, 2]"), (True, b"true")]
)
def test_a_value_that_is_no_text_is_published_as_json(value: object, published: bytes | None) -> None:
    """And null as none at all."""
    assert read_line(line(value=value)).value == published


@pytest.mark.parametrize(
    "value",
    [
        b'{"id":123456789012345678901234567890}',
        b"[1E+22, -0.10, 1.50]",
        b'{"a": 1, "a": "\\u00e9\\"}]", "b" :[]}',
        b"-7",
        b"false",
        b"[" * 500 + b"]" * 500,
        b'{"a":' * 500 + b'"["' + b"}" * 500,
        '{"ключ": "é"}'.encode(),
    ],
    ids=["large", "digits", "strings", "number", "word", "arrays", "objects", "unicode"],
)
@pytest.mark.parametrize(
    "form",
    [
        b'{"value":%b}',
        b'{ "headers": {"value": "}"}, "key": "a\\"{", "value" : %b }',
        b'{"value": {"a": [1, 2]},"headers":{},\t"v\\u0061lue":%b,"key":null}',
    ],
    ids=["short", "spaced", "twice"],
)
def test_a_value_is_published_to_the_byte(form: bytes, value: bytes) -> None:
    """With every digit, and of two the last."""
    assert read_line(form % value).value == value


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"Request-Id": "a", "request-id": "b"}, b"b"),
        ({"request-id": None}, None),
        ({"request-id": ""}, None),
        ({"other": "a"}, None),
    ],
)
def test_an_envelope_is_named_by_its_last_request_id(headers: dict[str, str | None], name: bytes | None) -> None:
    """As the worker reads headers: names have no case, the last one counts."""
    assert read_line(line(value="", headers=headers)).name == name


def test_a_request_id_that_is_no_text_is_no_name() -> None:
    """A worker does not send it back."""
    raw = base64.b64encode(b"\xff").decode()

    assert read_line(line(value="", headers_base64={"request-id": raw})).name is None


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        (b"{ broken", '{"value": "..."} publishes any text'),
        (b"PK\x03\x04\xff", '{"value_base64": "..."} publishes any bytes'),
        (b'{"value": %b}' % (b"[" * 1100 + b"]" * 1100), "depth limit exceeded: line 1 column 1035"),
        (b"[1]", "expected a JSON object"),
        (b"{}", "neither a request"),
        (line(value="", partition=3), "no member 'partition'"),
        (line(value="", value_base64=""), "`value` or `value_base64`, not both"),
        (line(value_base64="*"), "`value_base64` must be a string of base64"),
        (line(value_base64=7), "`value_base64` must be a string of base64"),
        (line(value="", key=7), "`key` must be a string or null"),
        (line(value="", headers=[1]), "`headers` must be an object"),
        (line(value="", headers={"h": 1}), "`header h` must be a string or null"),
        (line(value="", headers_base64={"h": "*"}), "`headers_base64: h` must be a string of base64"),
    ],
)
def test_a_line_that_is_neither_says_what_is_wrong(odd: bytes, told: str) -> None:
    """And not what Python thinks of it."""
    with pytest.raises(BadConfiguration) as failure:
        read_line(odd)

    assert told in str(failure.value)

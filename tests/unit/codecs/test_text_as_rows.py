"""A text whose length fits some rows is refused, and rows that begin like a text are taken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.codecs.builders import (
    AS_ROWS,
    codecs,
    floats,
    read_all,
    record,
    rejection,
    request,
    taking,
)
from worker.core.records import Rejection


def of_rows_length(text: bytes) -> bytes:
    """The JSON, padded to the length of some rows of three FP32."""
    return text + b" " * (-len(text) % 12)


JSON_AS_ROWS = of_rows_length(b'{"instances": [[1, 2, 3]]}')


@pytest.mark.parametrize("headers", [(AS_ROWS,), ()])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (of_rows_length(b'{"inputs": [{"name": "x"}]}'), "it looks like JSON: send the header content-type"),
        (JSON_AS_ROWS, "it looks like a request of KServe version 1"),
        (b"\x93NUMPY\x01\x00v\x00" + bytes(2), "it looks like a file of numpy"),
    ],
)
def test_json_is_not_taken_for_rows_because_of_its_length(headers: Any, value: bytes, said: str) -> None:
    """One length in twelve fits. The header is wrong, or plain rows are the default."""
    codec = codecs(default_content_type="application/octet-stream")

    assert "got a text or a file; it looks like" in rejection(codec, record(value, *headers)).message
    assert said in rejection(codec, record(value, *headers)).message
    assert all(isinstance(each, Rejection) for each in read_all(codec, [record(value, *headers)] * 9))


def test_json_among_rows_of_its_length_is_not_taken_for_one() -> None:
    """This happens where two teams write to one topic."""
    rows = [record(floats(1, 2, 3) * (len(JSON_AS_ROWS) // 12), AS_ROWS)] * 9

    codec = codecs()
    codec.read(rows)
    (chunk,), ((at, refused),), _ = codec.read([*rows, record(JSON_AS_ROWS, AS_ROWS), *rows])

    assert at == len(rows)
    assert "got a text or a file" in refused.message
    assert list(chunk.at) == [*range(9), *range(10, 19)]


@pytest.mark.parametrize(
    "value",
    [
        b"{" + floats(1, 2, 3)[1:],
        b'{"' + bytes(21) + b"}",
        b'{"abcdefgh' + b"\xff" + b"abcdefghijkl}",
        b'{"abcdefghi}',
        b"\x93NUMPX" + bytes(6),
    ],
)
def test_rows_may_begin_as_json_does(value: bytes) -> None:
    """One in 256 does. Rows that also end like JSON are short, or have bytes in between that are no text."""
    assert request(codecs(), record(value, AS_ROWS)).rows == len(value) // 12
    (chunk,), rejections, _ = codecs().read([record(value, AS_ROWS)] * 9)
    assert (len(chunk), rejections) == (9, [])


def test_text_may_be_rows_of_bytes_or_what_headers_say_it_is() -> None:
    """Some models read the characters of a text as UINT8."""
    stated = [("datatype", b"FP32"), ("rows", b"%d" % (len(JSON_AS_ROWS) // 12))]

    assert request(codecs(taking("UINT8")), record(JSON_AS_ROWS, AS_ROWS)).rows == len(JSON_AS_ROWS) // 3
    assert request(codecs(), record(JSON_AS_ROWS, AS_ROWS, *stated)).rows == len(JSON_AS_ROWS) // 12

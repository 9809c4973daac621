"""Keys, headers, sizes: what surrounds the value of an answer or a dead letter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.codecs.builders import (
    AS_JSON,
    AS_PROTOBUF,
    AS_ROWS,
    SOURCE,
    answer,
    as_binary,
    as_json,
    codecs,
    document,
    floats,
    headers_of,
    json_of,
    record,
    refusal,
    rejection,
    request,
)
from worker.core.chunk import Prediction
from worker.core.failures import Code
from worker.core.records import Partition, Record

TWO = np.array([[1, 2]], "<f4")


def rows(*headers: tuple[str, bytes | None], key: bytes | None = b"k") -> Record:
    return record(floats(1, 2, 3), AS_ROWS, *headers, key=key)


@pytest.mark.parametrize(
    ("header", "body", "named"),
    [
        (b"h-1", "b-1", "h-1"),
        (None, "b-1", "b-1"),
        (b"", "b-1", "b-1"),
        (b"h-1", None, "h-1"),
        (None, None, None),
        (SOURCE.encode(), None, None),
        (None, "", None),
    ],
)
def test_a_request_is_named_by_header_else_by_body(header: bytes | None, body: str | None, named: str | None) -> None:
    """The header is left out where it only repeats `source`."""
    message = answer(codecs(), as_json(document(id=body), ("request-id", header)), TWO)

    assert headers_of(message).get("request-id") == named
    assert json_of(message).get("id") == body


@pytest.mark.parametrize(
    "given",
    [
        as_json(document(id="i-1"), ("timeout-ms", b"0")),
        as_json(document(id="i-1"), ("deadline", b"1700000000")),
        as_json(document(id="i-1"), ("accept", b"text/html")),
        as_binary(document(id="i-1"), b"", ("timeout-ms", b"-3")),
        record(b"\x1a\x03i-1", AS_PROTOBUF, ("timeout-ms", b"0")),
    ],
)
def test_wrong_headers_do_not_hide_the_bodys_id(given: Record) -> None:
    """A publisher that knows its request only by that id would wait for ever if the error named a place."""
    refused = rejection(codecs(), given)

    (error,) = refusal(codecs(), refused)
    assert refused.ids.body_id == "i-1"
    assert headers_of(error)["request-id"] == "i-1"


@pytest.mark.parametrize(
    "given",
    [
        record(b'{"id": "i-1"}', ("content-type", b"text/html")),
        record(b'{"id": 7}', AS_JSON, ("timeout-ms", b"0")),
        record(b"{", AS_JSON, ("timeout-ms", b"0")),
        as_json(document(id="i" * 1025), ("timeout-ms", b"0")),
        as_json(document(id="i-1", more="x" * 1000), ("timeout-ms", b"0")),
        rows(("timeout-ms", b"0")),
    ],
)
def test_wrong_headers_before_a_body_without_a_readable_id(given: Record) -> None:
    """The error is about the headers, and names the request's place. A value that is too long is not read at all."""
    refused = rejection(codecs(max_request_bytes=1000), given)

    assert refused.message.startswith(("content-type:", "timeout-ms:"))
    assert refused.ids.body_id is None
    assert refused.ids.request_id is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (rows()._replace(value=None), "expected a request, got a null value"),
        (rows()._replace(value=b""), "expected a request, got an empty value"),
        (rows()._replace(value=None, headers=(), unreadable="bad checksum"), "could not be read: bad checksum"),
        (record(b"x", ("content-type", b"text/html")), "content-type: expected one of"),
        (record(None, ("content-type", b"text/html")), "content-type: expected one of"),
    ],
)
def test_a_record_without_a_readable_value_is_refused(given: Record, said: str) -> None:
    """Each case has its own reason."""
    refused = rejection(codecs(), given)

    assert said in refused.message
    assert refused.code == Code.INVALID_ARGUMENT


def test_a_value_over_the_limit_is_refused_unread() -> None:
    """The value is nonsense, but the error names only its length."""
    refused = rejection(codecs(max_request_bytes=100), record(b"\xff" * 101, AS_JSON))

    assert refused.code == Code.RESOURCE_EXHAUSTED
    assert refused.message == "the value has 101 bytes, at most 100 are taken"


def test_a_value_at_the_limit_is_taken() -> None:
    """A value of exactly the limit is taken, alone and among other records."""
    codec = codecs(max_request_bytes=12)
    whole, over = (record(floats(*range(count)), AS_ROWS) for count in (3, 6))

    assert request(codec, whole).rows == 1
    assert rejection(codec, over).code is Code.RESOURCE_EXHAUSTED
    assert [len(chunk) for chunk in codec.read([whole] * 8).chunks] == [8]
    assert not codec.read([over] * 8).chunks
    assert [len(chunk) for chunk in codec.read([over, whole] * 4).chunks] == [4]


@pytest.mark.parametrize("ids", [(), (("request-id", b"r"),)])
def test_answers_of_several_partitions_that_are_written_together_name_their_own(
    ids: Sequence[tuple[str, bytes]],
) -> None:
    """Each says its source, and goes back to the partition of that; with ids in the headers, too."""
    places = [(0, 7), (0, 8), (3, 5)]
    given = [rows(*ids)._replace(partition=Partition("requests", number), offset=offset) for number, offset in places]
    codec = codecs()
    (both,) = codec.read(given).chunks

    answers = codec.messages(codec.write(Prediction(both, [np.zeros((3, 2), "<f4")])))

    sources = [dict(headers or ())["source"] for _, _, _, headers, _, _ in answers]
    assert sources == [f"requests/{number}/{offset}".encode() for number, offset in places]
    assert [answer[4] for answer in answers] == [number for number, _ in places]


def test_a_null_value_may_be_skipped() -> None:
    """A skipped record gets no answer and no dead letter. An empty value or an unreadable record is still an error."""
    codec = codecs(null_value="skip", dead_letter_topic="dead-letters")

    def sent(given: Record) -> int:
        return len(refusal(codec, rejection(codec, given)))

    assert sent(rows()._replace(value=None)) == 0
    assert sent(rows()._replace(value=b"")) == 2
    assert sent(rows()._replace(value=None, unreadable="bad checksum")) == 2

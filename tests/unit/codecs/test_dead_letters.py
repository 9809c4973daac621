"""Dead letters read again: their fields, and the requests in them."""

from __future__ import annotations

import pytest

from tests.unit.tools.dead_letters.builders import DEAD, dead_record, letter
from worker.codecs.dead_letters import UNREADABLE, Position, read
from worker.codecs.encodings.oip_protobuf import _InferRequest
from worker.codecs.request_headers import Envelopes
from worker.codecs.wire_contract import JSON, OCTETS, PROTOBUF
from worker.core.failures import Code
from worker.core.records import UNREADABLE_HEADERS, Record
from worker.tools.dead_letters.letters import original

ENVELOPES = Envelopes(JSON)
NAMED = [("request-id", b"a1")]


def test_a_letter_says_what_its_writer_knew() -> None:
    """It says where the request lay, why it was rejected and by which group, and holds the request as it came."""
    found = read(dead_record(7, code=Code.INTERNAL, message="it broke", headers=[("h", b"1"), ("h", None)]))

    assert found.code == "INTERNAL"
    assert found.message == "it broke"
    assert found.origin == Position("requests", 2, 107)
    assert found.group == "group"
    assert found.headers == [("h", b"1"), ("h", None)]
    assert (found.record.key, found.record.value) == (b"k", b"{}")
    assert (str(found.position), found.omitted, found.loss) == ("dead/0/7", {}, None)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("__dlq.errors.topic", b"t"), ("__dlq.errors.partition", b"x"), ("__dlq.errors.offset", b"1")],
        [("__dlq.errors.topic", b"t"), ("__dlq.errors.partition", b"1"), ("__dlq.errors.offset", b"-1")],
        [("__dlq.errors.topic", b"t"), ("__dlq.errors.partition", b"1"), ("__dlq.errors.offset", None)],
        [("__dlq.errors.topic", b"a/b"), ("__dlq.errors.partition", b"1"), ("__dlq.errors.offset", b"1")],
    ],
)
def test_whatever_stands_in_the_topic_can_be_read(headers: list[tuple[str, bytes | None]]) -> None:
    """A record that no worker wrote, or that names an impossible origin, is a letter without an origin."""
    found = read(Record(DEAD, 0, None, b"\xff", headers, None))

    assert (found.origin, found.code, found.loss) == (None, "", None)


def test_a_request_whose_headers_could_not_be_read_is_not_made_again_without_them() -> None:
    """The headers said how to read the request."""
    found = read(dead_record(7, code=Code.INVALID_ARGUMENT, message="the headers", headers=UNREADABLE_HEADERS))

    assert found.loss == "the record's headers could not be read"
    assert found.record.value == b"{}"


PRETENDING = [
    ("content-type", JSON.encode()),
    ("Status", b"ok"),
    ("source", b"requests/0/1"),
    ("error-code", b"NOT_FOUND"),
    ("source", None),
    ("Value-Omitted", b"7"),
    ("key-omitted", b"7"),
]


def test_a_replay_gives_a_request_its_own_headers_back() -> None:
    """The headers get their own names and order back, though the letter has other names for them."""
    found = letter(headers=PRETENDING)

    assert (found.code, found.omitted, found.loss) == ("INVALID_ARGUMENT", {}, None)
    assert found.headers == PRETENDING
    sent = original(found, "requests", ENVELOPES)
    assert list(sent.headers)[: len(PRETENDING)] == PRETENDING


def test_headers_of_a_later_kip_are_not_the_requests_own() -> None:
    """The rejecting worker wrote every header that begins with `__dlq.`."""
    found = read(Record(DEAD, 0, None, b"{}", [("__dlq.errors.stacktrace", b"..."), ("mine", b"1")], None))

    assert found.headers == [("mine", b"1")]


@pytest.mark.parametrize(
    ("record", "loss"),
    [
        (dead_record(value=b"x" * 5000, limit=2000), "the record's value did not fit into the dead letter"),
        (
            dead_record(value=b"x" * 5000, key=b"y" * 5000, limit=2000),
            "the record's value and key did not fit into the dead letter",
        ),
        (
            dead_record(headers=[("h", b"x" * 5000)], limit=2000),
            "the record's headers did not fit into the dead letter",
        ),
        (
            dead_record(value=None, message=f"{UNREADABLE}: bad"),
            "the record could not be read, so the dead letter does not hold it",
        ),
        (dead_record(value=None), None),
        (dead_record(value=b""), None),
    ],
)
def test_what_a_letter_has_not_got_it_admits(record: Record, loss: str | None) -> None:
    """A request is sent back whole or not at all. A null value counts as a value."""
    assert read(record).loss == loss


def test_a_request_goes_back_as_it_was() -> None:
    """It has its key, value and headers in order, none of the dead letter's, and the place where it lay."""
    headers = [("content-type", JSON.encode()), *NAMED, ("traceparent", b"00-1"), ("h", None), ("h", b"2")]

    message = original(letter(headers=headers), "elsewhere", ENVELOPES)

    assert message.topic == "elsewhere"
    assert (message.key, message.value, message.source_partition) == (b"k", b"{}", 2)
    assert list(message.headers) == [*headers, ("replay-of", b"requests/2/100")]


def test_a_request_goes_back_to_be_answered_whenever_it_can_be() -> None:
    """Its requester no longer waits, so its timeout and deadline are removed."""
    headers = [("Timeout-MS", b"250"), ("request-id", b"r-1"), ("deadline", b"1700000000250")]

    message = original(letter(headers=headers), "requests", ENVELOPES)

    assert list(message.headers) == [("request-id", b"r-1"), ("replay-of", b"requests/2/100")]


def test_a_replay_of_a_replay_names_the_first_request() -> None:
    """Its publisher knows it by one name, however often it is sent back."""
    headers = [("request-id", b"requests/2/5"), ("replay-of", b"requests/2/5")]

    assert list(original(letter(headers=headers), "requests", ENVELOPES).headers) == headers


def protobuf(request_id: str) -> bytes:
    value: bytes = _InferRequest(id=request_id, model_name="m").SerializeToString()
    return value


@pytest.mark.parametrize(
    ("value", "content_type", "is_named"),
    [
        (b'{"id": "a1", "inputs": []}', JSON, True),
        (b'{"id": "a1"}', None, True),
        (b'{"inputs": []}', JSON, False),
        (b'{"id": ""}', JSON, False),
        (b'{"id": 7}', JSON, False),
        (b'{"id": "a1"', JSON, False),
        (b'{"id": "a1"}', "text/plain", False),
        (protobuf("a1"), PROTOBUF, True),
        (protobuf(""), PROTOBUF, False),
        (b"\xff\xff", PROTOBUF, False),
        (b"\0\0\0\0", OCTETS, False),
        (None, JSON, False),
    ],
)
def test_a_request_without_an_id_gets_its_place(
    value: bytes | None, content_type: str | None, *, is_named: bool
) -> None:
    """The answer to the first attempt named that place; the answer to the second does too. An id of its own stays."""
    headers = [] if content_type is None else [("content-type", content_type.encode())]

    message = original(letter(value=value, headers=headers), "requests", ENVELOPES)

    ids = [header for header in message.headers if header[0] == "request-id"]
    assert ids == ([] if is_named else [("request-id", b"requests/2/100")])


def test_a_letter_of_unknown_origin_goes_without_a_name() -> None:
    """The letter does not say where the request lay. It keeps its own id, and has no `replay-of`."""
    message = original(read(Record(DEAD, 3, b"k", b"v", [("h", b"1")], None)), "elsewhere", ENVELOPES)

    assert (message.topic, list(message.headers), message.source_partition) == ("elsewhere", [("h", b"1")], 0)

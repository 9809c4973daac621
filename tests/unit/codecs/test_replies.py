"""The encoding, topic and partition that a requester chooses for its answer, and the error for an impossible choice."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tests.unit.codecs.builders import AS_ROWS, answer, codecs, decode, record, refusal, rejection
from worker.codecs.codec import Codec
from worker.codecs.replies import admitted
from worker.codecs.wire_contract import JSON, OCTETS, PROTOBUF
from worker.core.chunk import Prediction
from worker.core.records import Headers, Message, Partition, Record, Rejection

ROW = np.array([1, 2, 3], "<f4").tobytes()
TOPICS = {"responses": 4, "mine": 2}


def one(**decisions: Any) -> Codec:
    """A codec of the plain model. Answers go to a topic of four partitions, or to another of two."""
    return codecs(reply_topics=TOPICS, **decisions)


def answered(*headers: tuple[str, bytes | None], value: bytes = ROW, codec: Codec | None = None) -> Message:
    """The answer to a row with these headers: a result or an error."""
    codec = codec or one()
    given = record(value, AS_ROWS, *headers)
    taken = decode(codec, given)
    if isinstance(taken, Rejection):
        return refusal(codec, taken)[0]
    return answer(codec, given, np.array([[1, 2]], "<f4"))


def destination(message: Message) -> tuple[str, int | None]:
    return message.topic, message.partition


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("reply-partition", b"3")], ("responses", 3)),
        ([("Reply-Partition", b" 0 ")], ("responses", 0)),
        ([("kafka_replyPartition", struct.pack(">i", 2))], ("responses", 2)),
        ([("reply-topic", b"mine")], ("mine", None)),
        ([("reply-topic", b"responses")], ("responses", None)),
        ([("reply-topic", b"mine"), ("reply-partition", b"1")], ("mine", 1)),
        ([("kafka_replyTopic", b"mine"), ("kafka_replyPartition", struct.pack(">i", 1))], ("mine", 1)),
        ([("reply-partition", b"1"), ("kafka_replyPartition", struct.pack(">i", 2))], ("responses", 1)),
        ([("reply-topic", b"mine"), ("kafka_replyTopic", b"another")], ("mine", None)),
        ([("reply-partition", None)], ("responses", None)),
        ([("reply-partition", b"3"), ("REPLY-PARTITION", b"2")], ("responses", 2)),
        ([("reply-topic", b"mine"), ("junk", b"x" * 2000)], ("mine", None)),
    ],
)
def test_a_requester_names_the_destination(headers: Headers, expected: tuple[str, int | None]) -> None:
    """Our header names and Spring's are read, with or without the cache; ours win."""
    codec = one()

    assert [destination(answered(*headers, codec=codec)) for _ in range(3)] == [expected] * 3
    assert destination(answered(("request-id", b"a"), *headers, codec=codec)) == expected


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([("reply-partition", b"4")], b"no partition 4 of responses, which had 4 when the worker started"),
        ([("reply-topic", b"mine"), ("reply-partition", b"2")], b"no partition 2 of mine"),
        ([("reply-partition", b"x")], b"expected a partition's number"),
        ([("reply-partition", b"-1")], b"expected a partition's number"),
        ([("reply-partition", b"1" * 10)], b"expected a partition's number"),
        ([("kafka_replyPartition", b"1")], b"kafka_replyPartition: expected 4 bytes, big-endian, got 1"),
        ([("kafka_replyPartition", struct.pack(">i", -1))], b"kafka_replyPartition: there is no partition -1 of"),
        ([("reply-topic", b"another")], b"'another'; the worker's KAFKA__REPLY_TOPICS does not name it"),
        ([("kafka_replyTopic", b"\xff" * 1000)], b"kafka_replyTopic: answers may not go to"),
    ],
)
def test_a_destination_that_cannot_be_is_an_error_where_all_answers_go(headers: Headers, why: bytes) -> None:
    """The worker goes on, and the error carries the requester's id."""
    message = answered(("request-id", b"a"), *headers)

    assert destination(message) == ("responses", None)
    assert dict(message.headers) | {"source": b""} == {
        "content-type": b"application/json",
        "status": b"error",
        "model-version": b"1",
        "error-code": b"INVALID_ARGUMENT",
        "source": b"",
        "request-id": b"a",
    }
    assert why in (message.value or b"")


def test_a_topic_that_is_shut_is_an_error_where_all_answers_go() -> None:
    """Its owner has deleted an allowed topic: only its requesters lose their answers."""
    codec = codecs(reply_topics={"responses": 4}, shut={"mine": "it is not there"})

    message = answered(("reply-topic", b"mine"), codec=codec)

    assert destination(message) == ("responses", None)
    assert b"answers cannot go to mine: it is not there; once that is mended" in (message.value or b"")


def test_an_error_goes_where_its_requester_reads() -> None:
    """This holds for an invalid row, an unknown content type, and an answer that is too large, which loses its key."""
    to = ("reply-partition", b"2")
    codec = one(max_answer_bytes=400)
    unknown = rejection(codec, record(b"{}", ("content-type", b"?"), to, ("correlation-id", b"c" * 900)))

    assert destination(answered(to, value=b"123")) == ("responses", 2)
    assert [destination(message) for message in refusal(codec, unknown)] == [("responses", 2)]


def of_rows(codec: Codec, *destinations: Headers) -> list[tuple[str, int | None]]:
    """The destinations of the answers to rows that are read in one poll."""
    records = [
        Record(Partition("requests", 3), at, b"k", ROW, [AS_ROWS, ("request-id", b"%d" % at), *headers], None)
        for at, headers in enumerate(destinations)
    ]
    found: dict[int, tuple[str, int | None]] = {}
    for chunk in codec.read(records).chunks:
        messages = codec.messages(codec.write(Prediction(chunk, [np.zeros((len(chunk), 2), "<f4")])))
        found |= {at: destination(Message._make(fields)) for at, fields in zip(chunk.at, messages, strict=True)}
    return [found[at] for at in range(len(records))]


def test_rows_that_are_read_together_part_where_their_requesters_wish() -> None:
    """Each goes to the partition that it names, or by its key, and also to several topics."""
    three: Headers = [("reply-partition", b"3")]
    one_: Headers = [("reply-partition", b"1")]
    mine: Headers = [("reply-topic", b"mine"), ("reply-partition", b"1")]

    assert of_rows(one(), *[three] * 8) == [("responses", 3)] * 8
    assert of_rows(one(), *[three, one_, []] * 3) == [("responses", 3), ("responses", 1), ("responses", None)] * 3
    assert of_rows(one(), *[mine] * 8) == [("mine", 1)] * 8
    assert of_rows(one(), *[mine, []] * 4) == [("mine", 1), ("responses", None)] * 4


@pytest.mark.parametrize(
    ("accept", "best_first"),
    [
        ("*/*", (PROTOBUF, JSON, OCTETS)),
        ("application/*", (PROTOBUF, JSON, OCTETS)),
        (JSON, (JSON,)),
        (f'"{JSON}"', (JSON,)),
        ("Application/JSON; charset=utf-8", (JSON,)),
        (f"{JSON}, {OCTETS}", (JSON, OCTETS)),
        (f"{OCTETS}, */*;q=0.1", (PROTOBUF, JSON, OCTETS)),
        (f"text/html, {JSON};q=0.5", (JSON,)),
        (f" , {JSON} ,", (JSON,)),
        ("text/html", ()),
    ],
)
def test_the_requests_own_goes_first(accept: str, best_first: tuple[str, ...]) -> None:
    """This is a request in protobuf."""
    assert admitted(accept, PROTOBUF) == best_first

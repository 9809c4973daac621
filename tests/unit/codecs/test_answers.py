"""Keys, headers, sizes: what surrounds the value of an answer or a dead letter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.codecs.builders import (
    AS_JSON,
    AS_PROTOBUF,
    AS_ROWS,
    PLAIN_WIRE,
    SOURCE,
    answer,
    as_binary,
    as_json,
    codecs,
    document,
    floats,
    headers_of,
    json_of,
    model,
    record,
    rejection,
    request,
    tensor,
)
from worker.codecs.encodings import oip_json
from worker.codecs.encodings.oip_protobuf import read_tensors
from worker.codecs.message_sizes import ROOM_FOR_HEADERS, fits, size_of
from worker.codecs.registry import Codecs
from worker.core.failures import Code, TooManyRejections
from worker.core.records import ModelKey, Partition, Prediction, Record, Rejection, Reply, Request
from worker.core.rejections import Rejections
from worker.core.runs import Run

TWO = np.array([[1, 2]], "<f4")
SERVED = [model(), replace(model(), version="2")]
TRACE = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


def rows(*headers: tuple[str, bytes | None], key: bytes | None = b"k") -> Record:
    return record(floats(1, 2, 3), AS_ROWS, *headers, key=key)


def refused(given: Record, message: str = "no", code: Code = Code.INTERNAL, reply: Reply | None = None) -> Rejection:
    return Rejection(given, code, message, reply or Reply("application/json"))


def test_an_answer_carries_key_source_and_status() -> None:
    """It carries nothing that its requester does not need."""
    message = answer(codecs(), rows(), TWO)

    assert (message.topic, message.key, message.source_partition) == ("responses", b"k", 3)
    assert headers_of(message) == {
        "content-type": "application/octet-stream",
        "status": "ok",
        "model-version": "1",
        "source": SOURCE,
    }


@pytest.mark.parametrize("accepted", ["application/json", "application/x-protobuf", "application/octet-stream"])
def test_every_answer_says_which_file_gave_it(accepted: str) -> None:
    """The header holds the version as set, and the beginning of the file's digest: rows have no other place for it."""
    codec = codecs(replace(model(), sha256="3f9a2b1c" * 8))

    result = answer(codec, as_json(document(), ("accept", accepted.encode())), TWO)
    (error,) = codec.encode(rejection(codec, record(b"{", AS_JSON, ("accept", accepted.encode()))))

    assert headers_of(result)["model-version"] == headers_of(error)["model-version"] == "1@3f9a2b1c"


@pytest.mark.parametrize("accepted", ["application/json", "application/x-protobuf"])
def test_an_answer_names_the_version_that_ran(accepted: str) -> None:
    """This may not be the version that is served when the answer is written."""
    asked = request(codecs(), as_json(document(), ("accept", accepted.encode())))
    asked.model = ModelKey("m", "2")

    (message,) = Codecs(SERVED, PLAIN_WIRE, tell=lambda _: None).encode(Prediction(asked, (TWO,)))

    assert message.value is not None
    version = (
        json_of(message)["model_version"]
        if accepted == "application/json"
        else read_tensors(message.value, "outputs")[0]["model_version"]
    )
    assert version == headers_of(message)["model-version"] == "2"


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


def test_echoes_come_last_and_as_they_were() -> None:
    """This holds for results and errors."""
    codec = codecs()
    given = rows(TRACE, ("kafka_correlationId", b"\x01\xff"))

    result = answer(codec, given, TWO)
    (error,) = codec.encode(rejection(codec, given._replace(value=b"!")))

    assert list(result.headers[-2:]) == list(error.headers[-2:]) == [TRACE, ("kafka_correlationId", b"\x01\xff")]


def test_an_error_says_what_was_wrong() -> None:
    """The body is the protocol's error object, and a header has the code."""
    codec = codecs()

    (error,) = codec.encode(rejection(codec, as_json(document(id="i-1", inputs=[tensor(name="z")]))))

    assert headers_of(error) == {
        "content-type": "application/json",
        "status": "error",
        "model-version": "1",
        "error-code": "INVALID_ARGUMENT",
        "source": SOURCE,
        "request-id": "i-1",
    }
    assert json_of(error) == {"error": "the model has no input 'z'; it takes x FP32[batch, 3]", "id": "i-1"}
    assert (error.topic, error.key, error.source_partition) == ("responses", b"k", 3)


def test_a_message_is_bounded_and_always_text() -> None:
    """This holds for any message of a model or a library."""
    (error,) = codecs().encode(refused(rows(), "\ud800" + "x" * 5000))

    said = json_of(error)["error"]
    assert said.startswith("\\ud800x")
    assert said.endswith("x...")
    assert len(said) < 1050


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
    refusal = rejection(codecs(), given)

    (error,) = codecs().encode(refusal)
    assert refusal.reply.body_id == "i-1"
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
    refusal = rejection(codecs(max_request_bytes=1000), given)

    assert refusal.message.startswith(("content-type:", "timeout-ms:"))
    assert refusal.reply.body_id is None
    assert refusal.reply.request_id is None


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
    refusal = rejection(codecs(), given)

    assert said in refusal.message
    assert refusal.code == Code.INVALID_ARGUMENT


def test_a_record_may_be_refused_whatever_it_holds() -> None:
    """It may end the process, for example. The error has the encoding and the id that its requester asked for."""
    given = record(b"\xff", AS_PROTOBUF, ("request-id", b"r-1"))

    refusal = codecs().refuse(given, Code.INTERNAL, "poison")

    assert (refusal.code, refusal.message) == (Code.INTERNAL, "poison")
    assert (refusal.reply.content_type, refusal.reply.request_id) == ("application/x-protobuf", "r-1")


def test_a_value_over_the_limit_is_refused_unread() -> None:
    """The value is nonsense, but the error names only its length."""
    refusal = rejection(codecs(max_request_bytes=100), record(b"\xff" * 101, AS_JSON))

    assert refusal.code == Code.RESOURCE_EXHAUSTED
    assert refusal.message == "the value has 101 bytes, at most 100 are taken"


def test_a_value_at_the_limit_is_taken() -> None:
    """A value of exactly the limit is taken, alone and among other records."""
    codec = codecs(max_request_bytes=12)
    whole, over = (record(floats(*range(count)), AS_ROWS) for count in (3, 6))

    assert isinstance(codec.decode(whole), Request)
    assert isinstance(codec.decode(over), Rejection)
    (run,) = codec.decode_all([whole] * 8)
    assert isinstance(run, Run)
    assert not any(isinstance(one, Request) for one in codec.decode_all([over] * 8))


def test_a_null_value_may_be_skipped() -> None:
    """A skipped record gets no answer and no dead letter. An empty value or an unreadable record is still an error."""
    codec = codecs(null_value="skip", dead_letter_topic="dead-letters")

    def sent(given: Record) -> int:
        return len(codec.encode(rejection(codec, given)))

    assert sent(rows()._replace(value=None)) == 0
    assert sent(rows()._replace(value=b"")) == 2
    assert sent(rows()._replace(value=None, unreadable="bad checksum")) == 2


def test_a_dead_letter_is_the_original_and_why() -> None:
    """It has key, value and headers as they came, then the headers of KIP-1191."""
    codec = codecs(dead_letter_topic="dead-letters")
    given = record(b"!", AS_ROWS, ("mine", None), ("mine", b"\xff"))

    _, letter = codec.encode(rejection(codec, given))

    assert (letter.topic, letter.key, letter.value, letter.source_partition) == ("dead-letters", b"k", b"!", 3)
    assert list(letter.headers[:3]) == list(given.headers)
    assert headers_of(letter._replace(headers=letter.headers[3:])) == {
        "__dlq.errors.topic": "requests",
        "__dlq.errors.partition": "3",
        "__dlq.errors.offset": "1042",
        "__dlq.errors.group": "scorers",
        "__dlq.errors.delivery.count": "1",
        "__dlq.errors.message": "input x: expected rows of 12 bytes (x FP32[batch, 3]), got 1 bytes",
        "error-code": "INVALID_ARGUMENT",
    }


def test_a_dead_letter_that_comes_back_is_described_anew() -> None:
    """The new rejection's headers replace those of the earlier rejection."""
    codec = codecs(dead_letter_topic="dead-letters")
    _, first = codec.encode(rejection(codec, record(b"!", AS_ROWS)))

    again = rejection(codec, Record(Partition("repaired", 0), 5, b"k", b"!!", first.headers, None))
    _, second = codec.encode(again)

    assert headers_of(second)["__dlq.errors.topic"] == "repaired"
    assert len(second.headers) == len(first.headers)


def sizes(**limits: Any) -> Any:
    return codecs(dead_letter_topic="dead-letters", **limits)


def test_an_answer_that_does_not_fit_becomes_an_error() -> None:
    """Its request becomes a dead letter: a rejection like any other, which the worker hears of."""
    told: list[Rejection] = []
    codec = sizes(max_answer_bytes=400, tell=told.append)
    output = np.zeros((1, 100), "<f4")

    error, letter = codec.encode(Prediction(request(codec, rows()), (output,)))

    takes = size_of(answer(codecs(), rows(), output))
    assert headers_of(error)["error-code"] == "RESOURCE_EXHAUSTED"
    assert json_of(error)["error"] == f"the answer takes {takes} bytes, topic responses at most 400"
    assert letter.value == rows().value
    assert size_of(error) <= 400
    assert [rejection.code for rejection in told] == ["RESOURCE_EXHAUSTED"]


def test_an_answer_in_json_that_cannot_fit_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing millions of numbers takes seconds, in which the worker does nothing else."""
    monkeypatch.setattr(oip_json, "answer", lambda *_: pytest.fail("it was written"))
    told: list[Rejection] = []
    codec = sizes(max_answer_bytes=1000, tell=told.append)
    asked = request(codec, rows(("accept", b"application/json")))

    error, letter = codec.encode(Prediction(asked, (np.zeros((1, 501), "<f4"),)))

    assert headers_of(error)["error-code"] == "RESOURCE_EXHAUSTED"
    assert b"the answer takes more than 1002 bytes, topic responses at most 1000" in (error.value or b"")
    assert letter.value == rows().value
    assert [rejection.code for rejection in told] == ["RESOURCE_EXHAUSTED"]


def test_each_answer_counts_as_what_it_became() -> None:
    """A result that is refused when written counts as a rejection in a row; any other result ends the row."""
    rejections = Rejections(3)
    codec = sizes(max_answer_bytes=400, rejections=rejections)
    fitting, large = [Prediction(request(codec, rows()), (np.zeros((1, n), "<f4"),)) for n in (2, 100)]
    for outcome in (large, refused(rows(), "odd"), fitting, large, refused(rows(), "odd")):
        codec.encode(outcome)
        rejections.check()

    codec.encode(large)

    with pytest.raises(TooManyRejections, match="3 requests in a row were rejected"):
        rejections.check()


def test_an_answer_may_fill_its_topic_to_the_byte() -> None:
    """This holds when the size is counted, and when the room is so large that it need not be."""
    fitting = answer(codecs(), rows(), TWO)
    exactly = codecs(max_answer_bytes=size_of(fitting))
    less = codecs(max_answer_bytes=size_of(fitting) - 1)

    assert headers_of(answer(exactly, rows(), TWO))["status"] == "ok"
    assert headers_of(answer(less, rows(), TWO))["status"] == "error"
    assert fits(fitting, ROOM_FOR_HEADERS + len("k") + 8)


def test_a_key_that_does_not_fit_is_left_out() -> None:
    """A header says how long the key was; echoed headers stay."""
    codec = codecs(max_answer_bytes=1024)
    given = rows(TRACE, key=b"k" * 2000)

    (error,) = codec.encode(Prediction(request(codec, given), (TWO,)))

    assert error.key is None
    assert headers_of(error)["key-omitted"] == "2000"
    assert headers_of(error)["error-code"] == "RESOURCE_EXHAUSTED"
    assert headers_of(error)["traceparent"]
    assert size_of(error) <= 1024


@pytest.mark.parametrize("key", [None, b"k" * 2000])
def test_an_error_always_fits(key: bytes | None) -> None:
    """The last resort is an error without its requester's headers, with a short message."""
    codec = codecs(max_answer_bytes=1024)
    given = rows(("correlation-id", b"c" * 1000), ("request-id", b"r" * 1000), key=key)

    (error,) = codec.encode(refused(given, "x" * 900, reply=request(codec, given).reply))

    assert size_of(error) <= 1024
    assert headers_of(error)["source"] == SOURCE
    assert "request-id" not in headers_of(error)
    assert len(json_of(error)["error"]) == 200


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        (rows(key=b"k" * 100), {}),
        (rows()._replace(value=b"v" * 5000), {"value-omitted": "5000"}),
        (rows(key=b"k" * 3000)._replace(value=b"v" * 5000), {"value-omitted": "5000", "key-omitted": "3000"}),
        (
            rows(("mine", b"h" * 4000), ("status", b"x"), key=b"k" * 10),
            {"headers-omitted": "3"},
        ),
        (rows(key=b"k" * 3000), {"key-omitted": "3000"}),
        (rows(("mine", b"h" * 4000), key=b"k" * 3000), {"key-omitted": "3000", "headers-omitted": "2"}),
        (rows(("mine", b"h" * 4000))._replace(value=b"v" * 5000), {"value-omitted": "5000", "headers-omitted": "2"}),
        (rows(("mine", b"h" * 4000), key=None)._replace(value=None), {"headers-omitted": "2"}),
        (
            rows(("mine", b"h" * 4000), key=b"k" * 3000)._replace(value=b"v" * 5000),
            {"value-omitted": "5000", "key-omitted": "3000", "headers-omitted": "2"},
        ),
        (rows()._replace(value=b"v" * 400), {}),
    ],
)
def test_a_dead_letter_leaves_out_what_does_not_fit(given: Record, left_out: dict[str, str]) -> None:
    """It drops as few parts as possible and cuts its message to fit. It always says why, and where the request lay."""
    codec = sizes(max_dead_letter_bytes=1024)

    _, letter = codec.encode(refused(given, "because " * 100))

    said = headers_of(letter)
    assert {name: value for name, value in said.items() if name.endswith("-omitted")} == left_out
    assert size_of(letter) <= 1024
    assert said["__dlq.errors.offset"] == "1042"
    assert said["__dlq.errors.message"].startswith("because")
    assert letter.value == (None if "value-omitted" in left_out else given.value)
    assert letter.key == (None if "key-omitted" in left_out else given.key)
    assert ("content-type" in said) == ("headers-omitted" not in left_out)

"""Rejections as they are sent: an error answer that always fits, and a dead letter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.codecs.builders import AS_ROWS, SOURCE, floats, headers_of, json_of, message, model, record, writer
from worker.codecs.answer_writer import AnswerWriter
from worker.codecs.encodings.oip_protobuf import _InferenceError
from worker.codecs.message_sizes import size_of
from worker.codecs.wire_contract import JSON, OCTETS, PROTOBUF
from worker.core.failures import Code
from worker.core.records import NO_IDS, Ids, Message, Partition, Record, Rejection, ReplyForm, ReplyTo, RequestedOutput

TRACE = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
IN_JSON = ReplyForm(JSON)
ECHOES = (TRACE, ("kafka_correlationId", b"\x01\xff"))


def rows(*headers: tuple[str, bytes | None], key: bytes | None = b"k") -> Record:
    return record(floats(1, 2, 3), AS_ROWS, *headers, key=key)


def refused(
    given: Record | None = None,
    why: str = "no",
    code: Code = Code.INTERNAL,
    form: ReplyForm = IN_JSON,
    ids: Ids = NO_IDS,
    **more: Any,
) -> Rejection:
    return Rejection(given or rows(), code, why, form, ids, **more)


def sent(by: AnswerWriter, rejection: Rejection) -> list[Message]:
    return list(map(message, by.refuse(rejection)))


def lettering(**limits: Any) -> AnswerWriter:
    return writer(dead_letter_topic="dead-letters", **limits)


def test_an_error_says_what_was_wrong() -> None:
    """The body is the protocol's error object, and a header has the code. The echoes come last, as they were."""
    (error,) = sent(writer(), refused(why="no input", code=Code.INVALID_ARGUMENT, ids=Ids("r-1", "i-1", ECHOES)))

    assert json_of(error) == {"error": "no input", "id": "i-1"}
    assert (error.topic, error.key, error.source_partition) == ("responses", b"k", 3)
    assert error.headers == [
        ("content-type", b"application/json"),
        ("status", b"error"),
        ("model-version", b"1"),
        ("error-code", b"INVALID_ARGUMENT"),
        ("source", SOURCE.encode()),
        ("request-id", b"r-1"),
        *ECHOES,
    ]


def test_an_error_names_the_first_models_version() -> None:
    """An error comes from no model."""
    (error,) = sent(writer(model(), model()), refused())

    assert headers_of(error)["model-version"] == "1"


@pytest.mark.parametrize(
    ("form", "content_type"),
    [
        (ReplyForm(JSON), JSON),
        (ReplyForm(OCTETS), JSON),
        (ReplyForm(OCTETS, (RequestedOutput("y", binary=True),)), JSON),
        (ReplyForm(PROTOBUF), PROTOBUF),
    ],
)
def test_an_error_is_in_the_form_that_was_accepted(form: ReplyForm, content_type: str) -> None:
    """Rows and the binary-data form have no errors of their own: these are JSON."""
    (error,) = sent(writer(), refused(form=form, ids=Ids("i-1", "i-1")))

    assert headers_of(error)["content-type"] == content_type
    if content_type == PROTOBUF:
        parsed = _InferenceError.FromString(error.value)
        assert (parsed.error, parsed.id) == ("no", "i-1")
    else:
        assert json_of(error) == {"error": "no", "id": "i-1"}


def test_an_error_goes_where_its_requester_reads_and_the_letter_does_not() -> None:
    """This holds also for an error that loses its key, and for one that loses its requester's headers."""
    form = ReplyForm(JSON, to=ReplyTo("mine", 1))

    for by in (lettering(), lettering(max_answer_bytes=700), lettering(max_answer_bytes=400)):
        error, letter = sent(by, refused(rows(key=b"k" * 500), form=form, ids=Ids("r" * 300)))

        assert (error.topic, error.partition) == ("mine", 1)
        assert (letter.topic, letter.partition) == ("dead-letters", None)


def test_a_silent_rejection_sends_nothing() -> None:
    """The operator skips null values."""
    assert sent(lettering(), refused(rows()._replace(value=None), is_silent=True)) == []


@pytest.mark.parametrize("form", [ReplyForm(JSON), ReplyForm(PROTOBUF)])
def test_a_message_is_bounded_and_always_text(form: ReplyForm) -> None:
    """This holds for any message of a model or a library."""
    (error,) = sent(writer(), refused(why="\ud800" + "x" * 5000, form=form))

    said = json_of(error)["error"] if form.content_type == JSON else _InferenceError.FromString(error.value).error
    assert said.startswith("\\ud800x")
    assert said.endswith("x...")
    assert len(said) < 1050


def test_a_key_that_does_not_fit_is_left_out() -> None:
    """A header says how long the key was; echoed headers stay."""
    (error,) = sent(writer(max_answer_bytes=1024), refused(rows(key=b"k" * 2000), ids=Ids(None, None, (TRACE,))))

    assert error.key is None
    assert headers_of(error)["key-omitted"] == "2000"
    assert headers_of(error)["traceparent"]
    assert size_of(error) <= 1024


@pytest.mark.parametrize("key", [None, b"k" * 2000])
def test_an_error_always_fits(key: bytes | None) -> None:
    """The last resort is an error without its requester's headers, with a short message."""
    ids = Ids("r" * 1000, None, (("correlation-id", b"c" * 1000),))

    (error,) = sent(writer(max_answer_bytes=1024), refused(rows(key=key), "x" * 900, ids=ids))

    assert size_of(error) <= 1024
    assert headers_of(error)["source"] == SOURCE
    assert "request-id" not in headers_of(error)
    assert len(json_of(error)["error"]) == 200


# Dead letters


def test_a_dead_letter_is_the_original_and_why() -> None:
    """It has key, value and headers as they came, then the headers of KIP-1191."""
    given = record(b"!", AS_ROWS, ("mine", None), ("mine", b"\xff"))

    _, letter = sent(lettering(), refused(given, "no rows", Code.INVALID_ARGUMENT))

    assert (letter.topic, letter.key, letter.value, letter.source_partition) == ("dead-letters", b"k", b"!", 3)
    assert list(letter.headers[:3]) == list(given.headers)
    assert headers_of(letter._replace(headers=letter.headers[3:])) == {
        "__dlq.errors.topic": "requests",
        "__dlq.errors.partition": "3",
        "__dlq.errors.offset": "1042",
        "__dlq.errors.group": "scorers",
        "__dlq.errors.delivery.count": "1",
        "__dlq.errors.message": "no rows",
        "error-code": "INVALID_ARGUMENT",
    }


def test_a_dead_letter_that_comes_back_is_described_anew() -> None:
    """The new rejection's headers replace those of the earlier rejection."""
    _, first = sent(lettering(), refused(record(b"!", AS_ROWS)))

    _, second = sent(lettering(), refused(Record(Partition("repaired", 0), 5, b"k", b"!!", first.headers, None)))

    assert headers_of(second)["__dlq.errors.topic"] == "repaired"
    assert len(second.headers) == len(first.headers)


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
    _, letter = sent(lettering(max_dead_letter_bytes=1024), refused(given, "because " * 100))

    said = headers_of(letter)
    assert {name: value for name, value in said.items() if name.endswith("-omitted")} == left_out
    assert size_of(letter) <= 1024
    assert said["__dlq.errors.offset"] == "1042"
    assert said["__dlq.errors.message"].startswith("because")
    assert letter.value == (None if "value-omitted" in left_out else given.value)
    assert letter.key == (None if "key-omitted" in left_out else given.key)
    assert ("content-type" in said) == ("headers-omitted" not in left_out)

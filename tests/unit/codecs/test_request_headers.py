"""The meaning of a request's headers."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.meeting import meeting, met
from tests.unit.codecs.builders import AS_JSON, AS_PROTOBUF, AS_ROWS
from worker.codecs.request_headers import Envelope, Envelopes
from worker.codecs.wire_contract import HEAD_LENGTH, JSON, MAX_TEXT, OCTETS, PROTOBUF
from worker.core.records import UNREADABLE_HEADERS, Headers, Timeout


def read(*headers: tuple[str, bytes | None], default: str = JSON) -> Envelope:
    return Envelopes(default).read(headers)


@pytest.mark.parametrize("default", [JSON, PROTOBUF, OCTETS])
def test_without_headers_the_deployment_decides(default: str) -> None:
    """Without headers, request and answer have the default content type."""
    envelope = read(default=default)

    assert envelope.form.content_type == envelope.form.reply.content_type == default
    assert (envelope.form.rows is not None) == (default == OCTETS)
    assert envelope.fault is None
    assert envelope.size == 0


@pytest.mark.parametrize(
    "value",
    [
        b"application/octet-stream",
        b"APPLICATION/Octet-Stream",
        b"application/octet-stream; charset=utf-8",
        b'"application/octet-stream"',
        b' "application/octet-stream" ; a=b',
    ],
)
@pytest.mark.parametrize("name", ["content-type", "Content-Type", "CONTENT-TYPE"])
def test_case_parameters_and_quotes_do_not_matter(name: str, value: bytes) -> None:
    """Client libraries write a content type in different ways."""
    assert read((name, value)).form.content_type == OCTETS


@pytest.mark.parametrize(
    "value", [b"", b"application/x-python-pickle", b"text/json", b"\xff\xfe", b"x" * 2000, b"application/json" * 100]
)
def test_an_unknown_content_type_is_a_fault(value: bytes) -> None:
    """The fault lists the known ones and shows the beginning of what came."""
    envelope = read(("content-type", value))

    assert envelope.fault is not None
    assert envelope.fault.startswith("content-type: expected one of application/json, application/x-protobuf")
    assert len(envelope.fault) < 400


def test_too_many_headers_are_not_read() -> None:
    """A header of two bytes costs more to read than a whole request."""
    some = [AS_JSON, *[("", b"")] * 999]

    assert read(*some).fault is None
    assert read(*some, AS_ROWS).fault == "1001 headers, at most 1000 are read"
    assert read(*[("", b"")] * 500, ("request-id", b"a"), *[("", b"")] * 500).ids.request_id is None


@pytest.mark.parametrize("default", [JSON, OCTETS])
def test_headers_that_could_not_be_read_are_a_fault(default: str) -> None:
    """They may have said anything, so no default is assumed."""
    assert read(*UNREADABLE_HEADERS, default=default).fault == "the headers: the name of a header is not UTF-8"


def test_a_fault_does_not_hide_who_asked() -> None:
    """The error answer needs the request's id and its echoed headers."""
    envelope = read(("content-type", b"nonsense"), ("request-id", b"r-1"), ("correlation-id", b"c-1"))

    assert envelope.fault
    assert envelope.ids.request_id == "r-1"
    assert envelope.ids.echo == (("correlation-id", b"c-1"),)


def test_the_last_of_a_name_counts() -> None:
    """Names match in any case."""
    envelope = read(AS_JSON, ("Request-Id", b"first"), ("content-TYPE", OCTETS.encode()), ("request-id", b"last"))

    assert envelope.form.content_type == OCTETS
    assert envelope.ids.request_id == "last"


def test_a_header_without_a_value_is_no_header() -> None:
    """It even removes an earlier header of its name that had a value."""
    envelope = read(("content-type", None), ("request-id", b"r-1"), ("request-id", None), ("tracestate", None))

    assert envelope.form.content_type == JSON
    assert envelope.ids.request_id is None
    assert envelope.ids.echo == ()
    assert envelope.fault is None


@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"r" * (MAX_TEXT + 1)])
def test_a_request_id_that_cannot_come_back_is_passed_over(value: bytes) -> None:
    """An id that is empty, no text, or too long is ignored."""
    assert read(("request-id", value)).ids.request_id is None


@pytest.mark.parametrize(
    "name",
    ["correlation-id", "correlation_id", "kafka_correlationId", "Correlation-ID", "traceparent", "tracestate"],
)
def test_echoes_come_back_as_they_were_sent(name: str) -> None:
    """Name and bytes are unchanged: Spring's ids are binary."""
    assert read((name, b"\xff\x00\x01")).ids.echo == ((name, b"\xff\x00\x01"),)


def test_nothing_else_comes_back() -> None:
    """No other header comes back, and no value of more than 1 KiB."""
    envelope = read(
        ("x-mine", b"1"), ("status", b"ok"), ("kafka_replyTopic", b"secrets"), ("traceparent", b"t" * (MAX_TEXT + 1))
    )

    assert envelope.ids.echo == ()


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [(b"*/*", OCTETS), (b"", OCTETS), (b"  ", OCTETS), (b"application/json", JSON), (b"application/*;q=0.3", OCTETS)],
)
def test_the_answer_comes_as_the_request_unless_accept_says_otherwise(accept: bytes, content_type: str) -> None:
    """This is a request in rows."""
    envelope = read(AS_ROWS, ("Accept", accept))

    assert envelope.form.reply.content_type == content_type
    assert envelope.form.content_type == OCTETS


@pytest.mark.parametrize("accept", [b"text/html", b"\xff", b"application/json," * 200])
def test_an_accept_that_cannot_be_served_is_a_fault(accept: bytes) -> None:
    """It is found before inference; the error itself comes as JSON."""
    envelope = read(AS_PROTOBUF, ("accept", accept))

    assert envelope.fault is not None
    assert envelope.fault.startswith("accept: only application/json, ")
    assert envelope.form.reply.content_type == JSON


def test_the_head_length_makes_rows_the_binary_data_form() -> None:
    """The header's name matches in any case, too."""
    envelope = read(AS_ROWS, (HEAD_LENGTH.lower(), b" 17 "))

    assert envelope.form.head_length == 17
    assert envelope.form.rows is None


@pytest.mark.parametrize("around", [(), (AS_ROWS,), (AS_ROWS, (HEAD_LENGTH, b"17"))])
@pytest.mark.parametrize(
    ("headers", "timeout"),
    [
        ((("timeout-ms", b"250"),), Timeout(0.25)),
        ((("Timeout-MS", b" 1 "),), Timeout(0.001)),
        ((("timeout-ms", b"9999999999"),), Timeout(9_999_999.999)),
        ((("deadline", b"1700000000250"),), Timeout(None, 1_700_000_000.25)),
        ((("timeout-ms", b"250"), ("Deadline", b"1700000000250")), Timeout(0.25, 1_700_000_000.25)),
        ((("timeout-ms", b"5"), ("timeout-ms", b"250")), Timeout(0.25)),
        ((("timeout-ms", None),), None),
    ],
)
def test_a_publisher_says_how_long_it_waits(
    headers: Headers, timeout: Timeout | None, around: tuple[tuple[str, bytes], ...]
) -> None:
    """It gives a time from the record's timestamp, an instant, or both, in any combination with other headers."""
    envelope = read(*around, *headers)

    assert envelope.fault is None
    assert envelope.timeout == timeout


@pytest.mark.parametrize(
    ("name", "expected", "values"),
    [
        (HEAD_LENGTH, "a number of bytes", [b"-1", b"many", b"9" * 11]),
        ("timeout-ms", "milliseconds, 1 to 9999999999, got ", [b"0", b"-250", b"+250", b"1e3", b"soon", b"1" * 11]),
        (
            "deadline",
            "milliseconds since 1970, 12 to 14 digits, got ",
            [b"0", b"1700000000", b"1700000000000000", b"2023-11-14T22:13:20Z"],
        ),
    ],
)
def test_a_number_that_is_none_is_a_fault(name: str, expected: str, values: list[bytes]) -> None:
    """So is one that is too small or large: seconds and microseconds since 1970 are in the past, or far away."""
    for value in (b"", b"1.5", b"\xff", "٣".encode(), *values):
        for written in (name, name.upper()):
            envelope = read(AS_ROWS, (written, value))

            assert envelope.fault is not None
            assert envelope.fault.startswith(f"{name}: expected {expected}"), value


def test_the_deployment_says_how_long_others_wait() -> None:
    """It sets the timeout of requests without one. If a request gives an instant, the earlier of both counts."""
    envelopes = Envelopes(JSON, default_timeout=2.0)

    assert envelopes.read(()).timeout == envelopes.read([AS_ROWS]).timeout == Timeout(2.0)
    assert envelopes.read([AS_ROWS, ("timeout-ms", b"250")]).timeout == Timeout(0.25)
    for headers in ([("deadline", b"1700000000250")], [AS_ROWS, ("deadline", b"1700000000250")]):
        assert envelopes.read(headers).timeout == Timeout(2.0, 1_700_000_000.25)


def test_a_form_is_read_once() -> None:
    """Publishers use few forms, and their requests differ only in their ids."""
    envelopes = Envelopes(JSON)

    assert envelopes.read([AS_ROWS]) is envelopes.read([AS_ROWS])
    assert envelopes.read([]).form is envelopes.read(()).form
    for number in range(9):
        headers = [AS_ROWS, ("request-id", b"%d" % number), ("timeout-ms", b"%d" % (number + 1)), ("x", b"%d" % number)]
        assert envelopes.read(headers).timeout == Timeout((number + 1) / 1000)
    assert len(envelopes._forms) == 2


def test_what_is_remembered_is_bounded() -> None:
    """New parameters, names and nonsense in every request do not fill the memory; long ones are not kept."""
    envelopes = Envelopes(JSON)

    for number in range(200 + 256):
        envelopes.read([("content-type", b"application/json; n=%d" % number)])
        envelopes.read([("content-type", b"nonsense %d" % number), (f"x-{number}", b"")])
        envelopes.read([("x" * 2000, b"%d" % number), ("datatype", b"x" * 2000)])
    envelopes.read([("accept", b"*/*" + b" " * 1100)])
    envelopes.read([("rows", b"")] * 100)

    assert 200 <= len(envelopes._forms) <= 256
    assert len(envelopes._layouts) <= 256
    assert all(len("".join(names)) <= MAX_TEXT for names in envelopes._layouts)
    assert all(form.fault is None for form in envelopes._forms.values())


HEADER = st.tuples(
    st.sampled_from(
        [
            *(
                "content-type",
                "Content-Type",
                "accept",
                "request-id",
                "correlation-id",
                "traceparent",
                "x",
                HEAD_LENGTH,
            ),
            *("timeout-ms", "Deadline", "datatype", "Rows"),
        ]
    ),
    st.one_of(
        st.none(),
        st.sampled_from([b"", OCTETS.encode(), JSON.encode(), b"text/plain", b"*/*", b"application/json;q=0", b"17"]),
        st.sampled_from([b"1700000000250", b"1700000000000"]),
        st.sampled_from([b"\xff", b"r-1", b"long" * 400]),
    ),
)


@meeting("an envelope is remembered", "more than is remembered")
@given(st.lists(st.lists(HEADER, max_size=5), min_size=1, max_size=12))
def test_what_was_read_before_changes_nothing(requests: list[list[tuple[str, bytes | None]]]) -> None:
    """The meaning of headers does not depend on being remembered, forgotten or never seen."""
    for most in (2, 256):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("worker.codecs.request_headers._MOST_KNOWN", most)
            remembers = Envelopes(JSON, 2.0)
            for headers in [*requests, *requests]:
                assert said(remembers.read(headers)) == said(Envelopes(JSON, 2.0).read(headers))
            assert len(remembers._forms) <= most
            assert len(remembers._layouts) <= most
            columns = remembers.read_all(requests)
            alone = [said(remembers.read(headers)) for headers in requests]
            assert [said(columns.of(at)) for at in range(len(requests))] == alone
            met("an envelope is remembered", is_so=bool(remembers._forms))
            met("more than is remembered", is_so=most == 2 and len({tuple(headers) for headers in requests}) > 4)


OWN = st.sampled_from([b"a", b"b", b"", b"\xff", b"x" * 1100, None])
NAMES = st.sampled_from(["request-id", "traceparent", "Traceparent", "x-other", "timeout-ms", "content-type"])


@meeting("an id", "an echo", "a value that is too long", "a timeout")
@given(st.lists(NAMES, max_size=4), st.lists(st.lists(OWN, min_size=4, max_size=4), min_size=1, max_size=6), OWN)
def test_headers_with_the_same_names_are_read_together_as_each_alone(
    names: list[str], own: list[list[bytes | None]], same: bytes | None
) -> None:
    """Whether they differ in ids and echoes, which are read in columns, or in more."""
    fixed = {"timeout-ms": b"250", "content-type": JSON.encode()} if same else {}
    requests = [[(name, fixed.get(name, value)) for name, value in zip(names, each, strict=False)] for each in own]

    columns = Envelopes(JSON).read_all(requests)

    alone = [Envelopes(JSON).read(headers) for headers in requests]
    assert [said(columns.of(at)) for at in range(len(requests))] == list(map(said, alone))
    met("an id", is_so=any(each.ids.request_id for each in alone))
    met("an echo", is_so=any(each.ids.echo for each in alone))
    met("a value that is too long", is_so=any(each.size > 1100 for each in alone))
    met("a timeout", is_so=any(each.timeout for each in alone))


def said(envelope: Envelope) -> object:
    """The comparable facts of an envelope."""
    return astuple(envelope.form), envelope[1:]


def test_equal_headers_give_one_form() -> None:
    """Records are grouped by it. Headers of the request itself change nothing, nor does their place."""
    envelopes = Envelopes(JSON)

    forms = [
        envelopes.read([AS_ROWS, ("accept", b"*/*")]).form,
        envelopes.read([("request-id", b"1"), AS_ROWS, ("traceparent", b"t"), ("accept", b"*/*")]).form,
        envelopes.read([AS_ROWS, ("timeout-ms", b"5"), ("x-junk", None), ("accept", b"*/*")]).form,
    ]

    assert forms == [forms[0]] * 3
    assert envelopes.read([AS_JSON, ("accept", b"*/*")]).form != forms[0]

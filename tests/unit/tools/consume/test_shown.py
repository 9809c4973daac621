"""Records for people and for machines: short, complete, and never raw."""

from __future__ import annotations

import base64
import json
from datetime import datetime

import numpy as np
import pytest

from tests.unit.codecs.builders import AS_ROWS, model
from worker.core.records import Headers, Partition, Record
from worker.tools.consume.reading import json_line, read
from worker.tools.consume.shown import document, json_of, lines_of

OK = ("status", b"ok")
NOON = datetime(2026, 11, 21, 12, 0, 0, 7000).astimezone()
LETTER: Headers = [
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"3"),
    ("__dlq.errors.offset", b"17"),
    ("__dlq.errors.message", b"input x: no"),
    ("error-code", b"NOT_FOUND"),
    ("status", b"error"),
]


def record(value: bytes | None, *headers: tuple[str, bytes | None], key: bytes | None = b"k") -> Record:
    return Record(Partition("answers", 1), 42, key, value, headers, int(NOON.timestamp() * 1000))


def lines(given: Record) -> list[str]:
    return list(lines_of(given, read(given, model), 80, NOON.date()))


def answer(value: bytes, *headers: tuple[str, bytes | None]) -> Record:
    return record(value, OK, ("source", b"orders/3/17"), ("request-id", b"a1"), *headers)


def test_an_answer_is_a_line_of_whose_it_is_and_one_for_each_output() -> None:
    """Enough to see at a glance what came."""
    shown = lines(answer(np.array([[0.5, 0.25]], "<f4").tobytes(), AS_ROWS))

    assert shown == ["12:00:00.007  ok  key k  source orders/3/17  id a1", "    y FP32[1, 2]  [0.5,0.25]"]


def test_a_record_of_another_day_says_which() -> None:
    """The clock alone would lie."""
    given = answer(b"")._replace(timestamp_ms=int(NOON.timestamp() * 1000) - 86_400_000)

    assert lines(given)[0].startswith("2026-11-20 12:00:00.007  ok")
    assert lines(given._replace(timestamp_ms=None))[0].startswith("no time  ok")


@pytest.mark.parametrize("stamp", [1_700_000_000_000_000, 2**62, -(2**62)])
def test_a_time_that_is_none_is_shown_as_its_number(stamp: int) -> None:
    """A producer that stamps microseconds, for one."""
    assert lines(answer(b"")._replace(timestamp_ms=stamp))[0].startswith(f"{stamp} ms  ok")


def nested(depth: int) -> Record:
    """A request whose elements lie so deep."""
    data = b"[" * depth + b"1" + b"]" * depth
    return record(b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": %b}]}' % data)


def test_what_no_line_of_json_can_hold_is_its_value() -> None:
    """Nested too deep, or a number too large: as text, and nothing else of the record is missing."""
    large = record(b'{"inputs": [{"name": "x", "shape": ["%d"], "datatype": "FP32", "data": [1]}]}' % 2**70)

    for given in (nested(300), nested(1000), large):
        found = json.loads(json_of(given, read(given)))

        assert found["value"].encode() == given.value
        assert lines(given)[1].startswith("    input x FP32[")
        assert (found["key"], "inputs" in found) == ("k", False)
    assert json.loads(json_of(nested(200), read(nested(200))))["inputs"][0]["name"] == "x"


def test_an_error_is_told_by_code_and_message() -> None:
    """On a line of its own, which a terminal breaks."""
    message = "word " * 30 + "end"
    given = record(b'{"error": "%b"}' % message.encode(), ("status", b"error"), ("error-code", b"INTERNAL"))

    assert lines(given) == ["12:00:00.007  INTERNAL  key k  source answers/1/42", f"    {message}"]


def test_a_dead_letter_is_told_with_its_origin_and_its_original() -> None:
    """Where the request lay, why it was rejected, and what it was."""
    given = record(b'{"inputs": [{"name": "x", "shape": [1], "datatype": "INT8", "data": [1]}]}', *LETTER)

    assert lines(given) == [
        "12:00:00.007  dead letter NOT_FOUND  key k  source orders/3/17",
        "    input x: no",
        "    input x INT8[1]  [1]",
    ]


def test_only_so_many_elements_are_shown_as_there_is_room() -> None:
    """With a sign that there are more."""
    many = answer(np.arange(1000, 1100).astype("<f4").tobytes(), AS_ROWS)
    nested = answer(
        b'{"outputs": [{"name": "y", "shape": [2, 50], "datatype": "INT8", "data": [%b]}]}'
        % b",".join([b"[%b]" % b",".join([b"7"] * 50)] * 2)
    )

    for given in (many, nested):
        (line,) = lines(given)[1:]
        assert line.endswith("…")
        assert len(line) == 80


@pytest.mark.parametrize(
    ("value", "headers", "told"),
    [
        (None, (), "no value"),
        (b"", (), "an empty value"),
        (b"plain text", (), "plain text"),
        (b"\xff\x00", (), "2 bytes  ff 00"),
        (b"a\x00", (), "2 bytes  61 00"),
        ("é".encode() * 200, (), "é" * 75 + "…"),
    ],
)
def test_a_value_that_is_not_understood_is_shown_as_it_is(
    value: bytes | None, headers: tuple[tuple[str, bytes]], told: str
) -> None:
    """As text where it is text."""
    assert lines(record(value, *headers))[1] == f"    {told}"


def test_a_record_that_could_not_be_unpacked_says_why() -> None:
    """It is one of the topic's records, too."""
    given = record(None)._replace(unreadable="bad compression")

    assert lines(given)[1] == "    cannot be read: bad compression"
    assert document(given, read(given))["unreadable"] == "bad compression"


EVIL = "\x1b[31m[red]\u202e\x07é\n"


def test_nothing_of_a_record_reaches_a_terminal_raw() -> None:
    """No colour, no movement, no turned writing, and no markup of rich."""
    raw = EVIL.encode()
    error = answer(json_line({"error": EVIL}))
    tensor = json_line({"outputs": [{"name": EVIL, "shape": [1], "datatype": EVIL, "data": [EVIL]}]})
    headers = [("status", raw), ("error-code", raw), ("source", raw), ("request-id", raw)]
    letter = [(name, raw) for name, _ in LETTER]

    for given in (error, answer(tensor), record(raw, *headers, key=raw), record(raw, *letter, key=raw)):
        shown = lines(given)
        assert any("[red]" in line for line in shown)
        assert all(line.isprintable() for line in shown)


def test_a_document_has_everything() -> None:
    """Place, time, key, headers and the tensors."""
    value = json_line({"model_name": "m", "outputs": [{"name": "y", "shape": [1], "datatype": "FP32", "data": [0.5]}]})
    given = answer(value)

    assert document(given, read(given)) == {
        "topic": "answers",
        "partition": 1,
        "offset": 42,
        "timestamp_ms": int(NOON.timestamp() * 1000),
        "key": "k",
        "headers": {"status": "ok", "source": "orders/3/17", "request-id": "a1"},
        "model_name": "m",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [0.5]}],
    }


def test_what_is_no_text_is_base64_in_a_document() -> None:
    """In the members that an envelope for `publish` has."""
    raw = b"\xff\x00"
    coded = base64.b64encode(raw).decode()
    given = record(raw, ("h", raw), ("null", None), key=raw)

    found = document(given, read(given))

    assert found["key_base64"] == found["value_base64"] == coded
    assert (found["headers"], found["headers_base64"]) == ({"null": None}, {"h": coded})


def test_an_error_in_a_document_is_its_message() -> None:
    """And its code is a header."""
    given = record(b'{"error": "no", "id": "a1"}', ("status", b"error"))

    found = document(given, read(given))

    assert (found["error"], found["id"]) == ("no", "a1")

"""Records for people and for machines: short, complete, and never raw."""

from __future__ import annotations

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
EVIL = "\x1b[31m[red]\u202e\x07é\n"


def record(value: bytes | None, *headers: tuple[str, bytes | None], key: bytes | None = b"k") -> Record:
    return Record(Partition("answers", 1), 42, key, value, headers, int(NOON.timestamp() * 1000))


def lines(given: Record) -> list[str]:
    return list(lines_of(given, read(given, model), 80, NOON.date()))


def answer(value: bytes, *headers: tuple[str, bytes | None]) -> Record:
    return record(value, OK, ("source", b"orders/3/17"), ("request-id", b"a1"), *headers)


def request(data: bytes, shape: bytes = b"[1]") -> Record:
    return record(b'{"inputs": [{"name": "x", "shape": %b, "datatype": "FP32", "data": %b}]}' % (shape, data))


def test_an_answer_is_a_line_of_whose_it_is_and_one_for_each_output() -> None:
    """It shows as many elements as fit."""
    few = lines(answer(np.array([[0.5, 0.25]], "<f4").tobytes(), AS_ROWS))
    many = lines(answer(np.arange(1000, 1100).astype("<f4").tobytes(), AS_ROWS))

    assert few == ["12:00:00.007  ok  key k  source orders/3/17  id a1", "    y FP32[1, 2]  [0.5,0.25]"]
    assert (len(many[1]), many[1][-1]) == (80, "…")


@pytest.mark.parametrize(
    ("stamp", "told"),
    [
        (int(NOON.timestamp() * 1000) - 86_400_000, "2026-11-20 12:00:00.007"),
        (None, "no time"),
        (1_700_000_000_000_000, "1700000000000000 ms"),  # a producer that stamps microseconds
        (-(2**62), f"{-(2**62)} ms"),
    ],
)
def test_a_time_of_another_day_says_which_and_what_is_none_is_a_number(stamp: int | None, told: str) -> None:
    """The time of day alone would mislead."""
    assert lines(answer(b"")._replace(timestamp_ms=stamp))[0].startswith(f"{told}  ok")


def test_a_dead_letter_is_told_with_its_origin_and_its_original() -> None:
    """The lines tell where the request lay, why it was rejected, and its content."""
    assert lines(request(b"[1]")._replace(headers=LETTER)) == [
        "12:00:00.007  dead letter NOT_FOUND  key k  source orders/3/17",
        "    input x: no",
        "    input x FP32[1]  [1]",
    ]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "no value"),
        (b"", "an empty value"),
        (b"plain text", "plain text"),
        (b"\xff\x00", "2 bytes  ff 00"),
        (b"a\x00", "2 bytes  61 00"),
        ("é".encode() * 200, "é" * 75 + "…"),
    ],
)
def test_a_value_that_is_not_understood_is_shown_as_it_is(value: bytes | None, told: str) -> None:
    """Valid text is shown as text."""
    assert lines(record(value)) == ["12:00:00.007  record  key k  source answers/1/42", f"    {told}"]


@pytest.mark.parametrize("given", [request(b"[" * 300 + b"1" + b"]" * 300), request(b"[1]", b'["%d"]' % 2**70)])
def test_what_no_line_of_json_can_hold_is_its_value(given: Record) -> None:
    """Deep nesting or a large number makes the value text; the rest of the record is complete."""
    found = json.loads(json_of(given, read(given)))

    assert found["value"].encode() == given.value
    assert (found["key"], "inputs" in found) == ("k", False)
    assert lines(given)[1].startswith("    input x FP32[")


def test_nothing_of_a_record_reaches_a_terminal_raw() -> None:
    """It changes no colour, cursor or writing direction."""
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
    """It has place, time, key, headers, and the tensors or the error."""
    value = json_line({"model_name": "m", "outputs": [{"name": "y", "shape": [1], "datatype": "FP32", "data": [0.5]}]})
    given, error = answer(value), record(b'{"error": "no", "id": "a1"}', ("status", b"error"))

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
    assert document(error, read(error)).items() >= {"error": "no", "id": "a1"}.items()

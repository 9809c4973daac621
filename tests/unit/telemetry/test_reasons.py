"""Reasons of rejections as shown to others than their publishers: they hold nothing that was sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.codecs.builders import AS_JSON, as_json, codecs, document, record, tensor
from worker.core.failures import Code
from worker.core.tensors.stacking import VALUE_NOT_TAKEN
from worker.telemetry.logs import LONGEST_REASON, RecentRejection
from worker.telemetry.rejections import MOST_KINDS, RecentRejections

CANARY = "kanarienvogel"
# Text around it on which quoting, cutting and escaping may fail.
NOISE = st.text(st.sampled_from("'\"\\ a\n…[{,"), max_size=90)


def reason(message: str, code: Code = Code.INVALID_ARGUMENT) -> str:
    return RecentRejection(code.value, "requests/0/1", message, 0.0).reason


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("model 'x' is not served here; 'digits' is", "model '…' is not served here; '…' is"),
        ("""got "it's \\"mine\\"" there""", "got '…' there"),
        ("got 'it\\'s mine' there", "got '…' there"),
        ("the model's next state 'h' holds NaN", "the model's next state '…' holds NaN"),
        ("got ['a', 'b...; the model takes 'pixels'", "got ['…'"),
        ("got 'cut short behind a backslash\\", "got '…'"),
        ("expected rows of 256 bytes, got 12 bytes", "expected rows of 256 bytes, got 12 bytes"),
        ("expected a\nline", "expected a\\nline"),
        ("sasl.password=hunter2 was refused", "sasl.password=[redacted] was refused"),
    ],
)
def test_what_a_message_quotes_is_left_out(message: str, shown: str) -> None:
    """If a quotation was cut short, all behind it is left out, since its end is unknown. Sizes stay, as they help."""
    assert reason(message) == shown


def test_of_what_the_model_says_no_number_is_shown() -> None:
    """A number may be an element of the request."""
    message = "the model failed on this record: Gather 'g': idx=9999 must be within the range [-10,9]"

    assert reason(message, Code.INTERNAL) == (
        "the model failed on this record: Gather '…': idx=… must be within the range […,…]"
    )
    assert reason(f"{VALUE_NOT_TAKEN}: Gather 'g': idx=9999", Code.INVALID_ARGUMENT) == (
        "the model does not take a value of this record: Gather '…': idx=…"
    )


def test_a_reason_is_a_line() -> None:
    """A long one is cut."""
    assert len(reason("x" * 10_000)) == LONGEST_REASON


@given(before=NOISE, behind=NOISE, place=st.integers(0, 8))
def test_nothing_of_a_request_is_in_the_reason_for_its_rejection(before: str, behind: str, place: int) -> None:
    """The publisher's text may be in names, datatypes, shapes, headers or ids, or be the value."""
    said = f"{before}{CANARY}{behind}"
    requests: list[Any] = [
        as_json(document(model_name=said)),
        as_json(document(model_version=said)),
        as_json({"inputs": [tensor(name=said)]}),
        as_json({"inputs": [tensor(datatype=said)]}),
        as_json({"inputs": [tensor(shape=[1, said])]}),
        as_json({"inputs": [tensor(data=[said, 1.0, 2.0])]}),
        as_json(document(outputs=[{"name": said}])),
        record(json.dumps(document()).encode(), AS_JSON, ("timeout-ms", said.encode()), ("accept", said.encode())),
        record(said.encode(), AS_JSON),
    ]

    _, ((_, refused),), _ = codecs().read([requests[place]])

    assert CANARY not in reason(refused.message, refused.code)


def kept(*messages: str) -> list[tuple[str, int]]:
    """The last message and the count of each kind, after these rejections."""
    rejections = RecentRejections()
    for message in messages:
        rejections.add("INVALID_ARGUMENT", "requests/0/1", message, 0.0)
    return [(each.message, each.times) for each in rejections.each]


def test_rejections_are_counted_by_the_field_that_failed() -> None:
    """All elements of an array are one field; the last message stands for each."""
    assert kept(
        "customer.age: missing",
        "items[3].price: expected a number",
        "customer.age: expected a number",
        "items[12].price: missing",
        "not run: the deadline was 3 ms before",
        "expected rows of 256 bytes",
        "expected FP32, got 'a: b'",
    ) == [
        ("customer.age: expected a number", 2),
        ("items[12].price: missing", 2),
        ("not run: the deadline was 3 ms before", 1),
        ("expected FP32, got 'a: b'", 2),
    ]


def test_fields_beyond_a_bound_share_an_entry() -> None:
    """No rejection goes uncounted, and a field that has an entry keeps it."""
    found = kept(*[f"field_{at}: missing" for at in range(2 * MOST_KINDS)], "field_1: missing")

    assert len(found) == MOST_KINDS + 1
    assert found[1] == ("field_1: missing", 2)
    assert found[-1] == (f"field_{2 * MOST_KINDS - 1}: missing", MOST_KINDS)


def test_a_long_beginning_is_no_field() -> None:
    """It may be of any length, and is kept as long as the worker runs."""
    assert kept("x" * 500 + ": missing", "y" * 500 + ": missing") == [("y" * 500 + ": missing", 2)]

"""The JSON Schema of records says what the mapping takes: both judge each record alike."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from worker.codecs.records.mapping import RecordMapping
from worker.codecs.records.record_contract import record_schema
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

INPUTS = (
    TensorSpec("amount", "FP32", ()),
    TensorSpec("count", "INT8", ()),
    TensorSpec("country", "BYTES", ()),
    TensorSpec("price", "FP64", ()),
    TensorSpec("prices", "FP64", (None,)),
    TensorSpec("parts", "FP32", (2,)),
    TensorSpec("since", "INT64", ()),
    TensorSpec("channel", "INT64", ()),
    TensorSpec("grid", "FP32", (None, 2)),
    TensorSpec("tags", "BYTES", (None,)),
    TensorSpec("seen", "BYTES", (None,)),
    TensorSpec("sizes", "INT64", (None,)),
)
ENTRIES: dict[str, Any] = {
    "country": {"field": "customer.country", "default": "none"},
    "price": {"field": "price", "as": "decimal"},
    "prices": {"field": "items[*].price", "as": "decimal", "default": 0},
    "since": {"field": "customer.since", "as": "ms"},
    "seen": {"field": "seen", "default": "nothing"},
    "sizes": "boxes[*].size",
    "channel": {"field": "channel", "names": ["web", "app"], "default": "web"},
}
GOOD: dict[str, Any] = {
    "amount": 1,
    "count": 7,
    "customer": {"country": "NL", "since": "2026-01-31T12:00:00Z"},
    "price": "1.10",
    "items": [{"price": 1.5}, {"price": None}],
    "parts": [1, 2.5],
    "channel": "app",
    "grid": [[1, 2], [3, 4], [5, 6]],
    "tags": ["a"],
    "boxes": [{"size": 1}],
    "more": {},
}
SIGNATURE = Signature("m", "1", INPUTS, (TensorSpec("score", "FP32", ()),))


def mapping_of(**changes: Any) -> RecordMapping:
    plain: dict[str, Any] = dict.fromkeys(("envelope", "rows", "key", "text", "image", "functions"))
    settings = {**plain, "only": {}, "inputs": ENTRIES, "answer": {}, **changes}
    return RecordMapping(SimpleNamespace(**settings), SIGNATURE)


def judged(mapping: RecordMapping, record: Any) -> tuple[bool, bool]:
    """Whether the schema takes the record, and whether the mapping does."""
    schema = record_schema(mapping.fields)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema).is_valid(record), not mapping.read([json.dumps(record).encode()], []).faults


def test_a_good_record_is_taken() -> None:
    """It may have other fields, too."""
    assert judged(mapping_of(), GOOD) == (True, True)


@pytest.mark.parametrize(
    ("change", "is_good"),
    [
        ({"amount": "1"}, False),
        ({"amount": None}, False),
        ({"count": 128}, False),
        ({"count": True}, False),
        ({"customer": {"since": "2026-01-31T12:00:00Z"}}, True),
        ({"customer": {"country": None, "since": "2026-01-31T12:00:00Z"}}, True),
        ({"customer": {"country": 1, "since": "2026-01-31T12:00:00Z"}}, False),
        ({"customer": None}, False),
        ({"price": 1.1}, True),
        ({"price": True}, False),
        ({"items": []}, True),
        ({"items": [1]}, False),
        ({"items": [{}]}, True),
        ({"items": None}, False),
        ({"boxes": []}, False),
        ({"tags": None}, False),
        ({"seen": None}, True),
        ({"seen": []}, True),
        ({"seen": ["a", None]}, True),
        ({"seen": [1]}, False),
        ({"parts": [1, "2"]}, False),
        ({"parts": [1, 2, 3]}, False),
        ({"channel": "phone"}, False),
        ({"channel": None}, True),
        ({"grid": [[1, 2]]}, True),
        ({"grid": [[1, 2], [3]]}, False),
    ],
)
def test_schema_and_mapping_judge_alike(change: dict[str, Any], is_good: bool) -> None:  # noqa: FBT001  # a case
    """The schema is for publishers: it promises no type that a worker refuses, and forbids none that it takes."""
    assert judged(mapping_of(), {**GOOD, **change}) == (is_good, is_good)


def test_a_field_that_the_answer_adds_is_no_field_of_a_record() -> None:
    """With `keep = "all"` both would stand in the answer."""
    mapping = mapping_of(answer={"keep": "all", "score": "score"})

    assert judged(mapping, {**GOOD, "score": 1}) == (False, False)
    assert judged(mapping, GOOD) == (True, True)


def test_a_record_in_an_envelope_is_described_with_it() -> None:
    """A kept field may be anything, and may be missing; a whole optional object may be, too."""
    entries = {**ENTRIES, "since": {"field": "at", "as": "ms", "epoch": "ms"}}
    mapping = mapping_of(envelope="payload.after", inputs=entries, answer={"keep": ["id"]})
    record = {**GOOD, "at": 1_770_000_000_000, "customer": None}

    assert judged(mapping, {"payload": {"after": record}}) == (True, True)
    assert judged(mapping, {"payload": {"after": {**record, "id": {"a": [1]}}}}) == (True, True)
    assert judged(mapping, {"payload": {}}) == (False, False)
    assert judged(mapping, record) == (False, False)


def one(datatype: str, entry: Any = "x", dims: tuple[int | None, ...] = (), **changes: Any) -> RecordMapping:
    """The mapping of a model with one input, x."""
    plain: dict[str, Any] = dict.fromkeys(("envelope", "rows", "key", "text", "image", "functions"))
    settings = {**plain, "only": {}, "inputs": {"x": entry}, "answer": {}, **changes}
    return RecordMapping(SimpleNamespace(**settings), Signature("m", "1", (TensorSpec("x", datatype, dims),), ()))


def in_ms(of: str, wanted: str) -> RecordMapping:
    return one(of, {"field": "x", "as": wanted, "epoch": "ms"})


@pytest.mark.parametrize(
    ("mapping", "most"),
    [
        (one("FP32"), 3.4e38),
        (one("FP16"), 65504),
        (one("INT8"), 127),
        (one("INT64"), 2**63 - 1),
        (one("UINT64"), 2**64 - 1),
        (one("FP32", {"field": "x", "as": "decimal"}), 3.4e38),
        (in_ms("INT8", "s"), 127_000),
        (in_ms("INT64", "hour"), 253_402_300_799_999),
        (in_ms("FP32", "us"), 3.4e35),
    ],
)
def test_a_number_has_the_bounds_of_its_input(mapping: RecordMapping, most: float) -> None:
    """Also those that are judged when its column is made."""
    beyond = most + max(1000, most // 10)

    assert judged(mapping, {"x": most}) == (True, True)
    assert judged(mapping, {"x": beyond}) == (False, False)


@pytest.mark.parametrize("mapping", [one("FP64"), in_ms("INT64", "us"), in_ms("INT64", "d"), in_ms("FP64", "us")])
def test_a_bound_that_no_number_of_a_record_passes_is_not_told(mapping: RecordMapping) -> None:
    """Nor one that JSON's readers would round."""
    assert judged(mapping, {"x": 9_000_000_000_000_000}) == (True, True)


def test_an_array_of_a_fixed_length_says_it() -> None:
    """Whether its elements are numbers, or objects with one field or more."""
    for mapping in (one("FP32", "tags[*]", (2,)), one("FP32", ["tags[*]", "tags[*]"], (2, 2))):
        assert judged(mapping, {"tags": [1, 2]}) == (True, True)
        assert judged(mapping, {"tags": [1]}) == (False, False)
        assert judged(mapping, {"tags": [1, 2, 3]}) == (False, False)


@pytest.mark.parametrize(
    ("record", "is_answered"),
    [
        ({"type": "payment", "c": {"new": True}, "x": 1}, True),
        ({"type": 7, "c": {"new": True}, "x": 1}, True),
        ({"type": "refund", "c": {"new": True}, "x": 1}, False),
        ({"type": "payment", "c": {"new": 1}, "x": 1}, False),
        ({"c": {"new": True}, "x": 1}, False),
        ({"type": "payment", "x": 1}, False),
    ],
)
def test_a_record_that_is_answered_is_of_a_wanted_kind(record: Any, is_answered: bool) -> None:  # noqa: FBT001  # a case
    """The contract is that of records that are answered; others are passed over."""
    mapping = one("FP32", only={"type": ["payment", 7], "c.new": True})
    mapped = mapping.read([json.dumps(record).encode()], [])

    assert Draft202012Validator(record_schema(mapping.fields)).is_valid(record) is is_answered
    assert bool(mapped.good) is is_answered


def test_a_field_that_feeds_two_inputs_is_of_both_types() -> None:
    """And of a wanted kind, if it tells that, too."""
    plain: dict[str, Any] = dict.fromkeys(("envelope", "rows", "key", "text", "image", "functions"))
    inputs = (TensorSpec("a", "FP32", ()), TensorSpec("b", "INT8", ()), TensorSpec("c", "FP32", ()))
    section = {**plain, "only": {"n": [1, 300]}, "inputs": dict.fromkeys("abc", "n"), "answer": {}}
    mapping = RecordMapping(SimpleNamespace(**section), Signature("m", "1", inputs, ()))

    assert judged(mapping, {"n": 1}) == (True, True)
    assert judged(mapping, {"n": 300}) == (False, False)
    assert judged(mapping, {"n": 2})[0] is False

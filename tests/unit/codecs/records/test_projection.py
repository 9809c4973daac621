"""A projection reads the wanted fields of records, in columns, and says what is wrong with the others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from worker.codecs.records.paths import WHOLE, path_of
from worker.codecs.records.projection import REQUIRED, Projection, Wish, from_objects

RECORD = {"a": 1.5, "c": {"d": "NL", "e": 2}, "items": [{"p": 1.0, "q": 3}, {"p": 2.0, "q": 4}], "tags": ["s", "t"]}


def wish(path: str, wanted: Any, default: Any = REQUIRED) -> Wish:
    return Wish(path_of("x", path), wanted, default)


def told(wanted: Wish, value: bytes) -> str:
    _, _, faults = Projection([wanted]).read([value])
    return faults[0]


def test_columns_come_in_the_order_of_the_wishes() -> None:
    """Nested fields, arrays of objects and arrays of values are one column each."""
    wishes = [wish("items[*].q", int), wish("a", float), wish("c.e", int), wish("tags[*]", str), wish("c.d", str)]
    projected = Projection(wishes).read([msgspec.json.encode(RECORD)])
    assert list(map(list, projected.columns)) == [[(3, 4)], [1.5], [2], [["s", "t"]], ["NL"]]
    assert Projection(wishes, from_objects).read([RECORD]).columns == projected.columns


def test_one_field_may_be_wanted_twice_and_the_whole_too() -> None:
    """Wishes that meet are read apart: a field as a number and as it stands, an object and a field of it."""
    wishes = [wish("a", float), wish("a", msgspec.Raw), wish("c", dict[str, Any]), wish("c.e", int), Wish(WHOLE, dict)]
    number, text, inner, e, whole = Projection(wishes).read([b'{"a": 1.50, "c": {"e": 2}}']).columns
    assert (list(number), bytes(text[0]), list(inner), list(e)) == ([1.5], b"1.50", [{"e": 2}], [2])
    assert list(whole) == [{"a": 1.5, "c": {"e": 2}}]


def test_an_array_and_an_object_of_one_name_are_no_contradiction() -> None:
    """A record that has the one lacks the other, so each is that record's fault."""
    projection = Projection([wish("a[*]", int), wish("a.b", int)])
    assert projection.read([b'{"a": [1]}', b'{"a": {"b": 1}}']).good == []


def test_a_missing_field_has_its_default_also_behind_a_missing_object() -> None:
    """A field that may miss may be null, too."""
    projection = Projection([wish("c.d", str, None), wish("c.e.f", int, None), wish("a", msgspec.Raw, msgspec.UNSET)])
    good, columns, faults = projection.read(
        [b"{}", b'{"c": null}', b'{"c": {"d": null}}', b'{"c": {"d": "x", "e": {"f": 1}}}']
    )
    assert (good, faults) == (range(4), {})
    assert list(map(list, columns)) == [[None, None, None, "x"], [None, None, None, 1], [msgspec.UNSET] * 4]


def test_bad_records_are_left_out_of_the_columns() -> None:
    """The good ones keep their order, and each bad one has its fault."""
    values = [b'{"a": 1}', b"[]", b'{"a": 2}', b"nonsense"]
    good, (column,), faults = Projection([wish("a", int)]).read(values)
    assert (good, list(column), sorted(faults)) == ([0, 2], [1, 2], [1, 3])


def test_nothing_good_gives_empty_columns() -> None:
    """The caller need not ask."""
    assert Projection([wish("a", int)]).read([b"[]"]).columns == [[]]


@pytest.mark.parametrize(
    ("wanted", "value", "why"),
    [
        (wish("a", float), b"{}", "a: missing"),
        (wish("c.d", str), b'{"c": {}}', "c.d: missing"),
        (wish("items[*].p", float), b'{"items": [{}]}', "items[0].p: missing"),
        (wish("a", float), b'{"a": "secret"}', "a: expected a number, got a text"),
        (wish("a", float), b'{"a": null}', "a: expected a number, got null"),
        (wish("a", int), b'{"a": 1.5}', "a: expected a whole number, got a number"),
        (wish("a", bool), b'{"a": 1}', "a: expected true or false, got a whole number"),
        (wish("a", str | None), b'{"a": {}}', "a: expected a text or null, got an object"),
        (wish("c.d", str), b'{"c": [1]}', "c: expected an object, got an array"),
        (wish("items[*].p", float), b'{"items": [{"p": 1}, {"p": []}]}', "items[1].p: expected a number, got an array"),
        (wish("a", float), b'{"a": 1e999}', "a: number out of range"),
        (wish("a", bytes), b'{"a": "?"}', "a: expected bytes in base64"),
        (wish("a", float), b"[1]", "the record: expected an object, got an array"),
        (wish("a", float), b"{'a': 1}", "the record is no JSON object: object keys must be strings (byte 1)"),
        (wish("a", float), b'{"a": NaN}', "the record is no JSON object: invalid character (byte 6)"),
        (wish("a", float), b'{"a"', "the record is no JSON object: input data was truncated"),
        (wish("a", str), b'{"a": "\xff"}', "a text of the record is not UTF-8"),
        (wish("a", float), b'{"b": ' + b"[" * 100_000, "the record is nested too deeply"),
    ],
)
def test_a_fault_names_the_path_and_what_was_expected_and_no_value(wanted: Wish, value: bytes, why: str) -> None:
    """Messages go to logs and to other teams, so nothing of a value is in them."""
    assert told(wanted, value) == why

"""A mapping makes the tensors of a model from the fields of records, and refuses what does not fit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.unit.codecs.records.builders import mapping, numbers, read, read_objects, record, spec, why
from worker.codecs.records.elements import _DECIMAL
from worker.codecs.records.inputs import MOST_REPEATED
from worker.codecs.records.projection import Given, ReaderOf, from_json, from_objects
from worker.codecs.records.served import DEEPEST
from worker.core.block import Block
from worker.core.failures import BadConfiguration


def made(entry: object, *values: object, of: Any = None, dtype: str = "<f4", **section: Any) -> list[list[Any]]:
    """The numbers of input x, for each of these values."""
    mapped = read(mapping(of or spec(), inputs={"x": entry}, **section), *values)
    assert not mapped.faults
    return numbers(mapped.tensors[0], dtype)


# Fields


def test_without_entries_names_match() -> None:
    """Each input takes the field of its name, so a model with an input for each column needs no mapping."""
    mapped = read(mapping(spec(name="age"), spec("BYTES", 1, name="country")), {"country": "NL", "age": 3, "more": 1})
    assert numbers(mapped.tensors[0]) == [[3.0]]
    assert list(mapped.tensors[1]) == [["NL"]]
    assert mapped.dims == [(), (1,)]


def test_a_vector_has_the_order_of_its_entry() -> None:
    """The record's own order never counts."""
    assert made(["a", "c.b"], {"c": {"b": 2}, "a": 1}, {"a": 3, "c": {"b": 4}}, of=spec("FP32", 2)) == [[1, 2], [3, 4]]
    assert made(["a", "b"], {"a": 1, "b": 2}, of=spec("FP32", None)) == [[1, 2]]
    mapped = read(mapping(spec("BYTES", 2), inputs={"x": ["a", "b"]}), {"a": "s", "b": "t"}, {"a": "u", "b": "v"})
    assert list(mapped.tensors[0]) == [["s", "t"], ["u", "v"]]


def test_rows_of_one_shape_stay_in_one_array() -> None:
    """So nothing is cut for each record, and joined again for the batch."""
    assert isinstance(read(mapping(), {"x": 1}, {"x": 2}).tensors[0], Block)


def test_a_mapping_tells_which_fields_feed_an_input() -> None:
    """For those who show it to people."""
    of = mapping(spec("FP32", 2), spec(name="y"), inputs={"x": ["a", "c.b"], "y": {"value": 1}})
    assert {name: list(map(str, paths)) for name, paths in of.fed_by.items()} == {"x": ["a", "c.b"], "y": []}


def test_a_mapping_tells_what_it_reads_around_a_value() -> None:
    """For the contract of headers and keys: fields of inputs, and those that tell which records count."""
    of = mapping(inputs={"x": "$headers.weight"}, only={"$key": ["a"], "type": ["b"]})
    assert [(str(wish.path), list(wish.names)) for wish in of.fields_around] == [
        ("$key", ["a"]),
        ("$headers.weight", []),
    ]
    assert [str(wish.path) for wish in of.fields] == ["type"]


def test_a_constant_fills_its_input() -> None:
    """It needs no field."""
    both = [spec("FP32", 2), spec("BYTES", name="t"), spec(name="y")]
    mapped = read(mapping(*both, inputs={"x": {"value": 0.5}, "t": {"value": "s"}}), {"y": 1}, {"y": 2})
    assert numbers(mapped.tensors[0]) == [[0.5, 0.5]] * 2
    assert list(mapped.tensors[1]) == [["s"]] * 2


@pytest.mark.parametrize("datatype", ["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"])
def test_a_whole_number_must_fit_its_type(datatype: str) -> None:
    """The bounds are in the message, and the value is not."""
    of, limits = mapping(spec(datatype)), np.iinfo(spec(datatype).dtype)
    fit = read(of, {"x": int(limits.min)}, {"x": int(limits.max)})
    assert numbers(fit.tensors[0], spec(datatype).dtype.str) == [[limits.min], [limits.max]]
    mapped = read(of, {"x": int(limits.max) + 1}, {"x": 1}, {"x": int(limits.min) - 1})
    assert mapped.good == [1]
    assert all(why.startswith("x: expected a") for why in mapped.faults.values())


@pytest.mark.parametrize("datatype", ["FP16", "FP32"])
def test_a_number_that_would_become_infinite_is_refused(datatype: str) -> None:
    """A float is rounded to its type, as in a tensor of a request, but it stays finite."""
    of = mapping(spec(datatype))
    assert why(of, {"x": 1e300}).startswith("x: expected a number of at most ")
    assert read(of, {"x": 0.1}).good == range(1)


def test_booleans_are_booleans_unless_a_conversion_is_declared() -> None:
    """true is no 1, but as = "boolean" says so."""
    assert made("b", {"b": True}, {"b": False}, of=spec("BOOL"), dtype="?") == [[True], [False]]
    assert why(mapping(inputs={"x": "b"}), {"b": True}) == "b: expected a number, got true or false"
    assert made({"field": "b", "as": "boolean"}, {"b": True}, {"b": False}) == [[1], [0]]


def test_a_decimal_is_taken_by_its_value() -> None:
    """From a text, a number, and the decimals of other encodings."""
    entry = {"field": "d", "as": "decimal"}
    assert made(entry, {"d": "1.10"}, {"d": 2.5}, {"d": 3}, of=spec("FP64"), dtype="<f8") == [[1.1], [2.5], [3.0]]
    mapped = read_objects(mapping(spec("FP64"), reader_of=from_objects, inputs={"x": entry}), {"d": Decimal("1.10")})
    assert numbers(mapped.tensors[0], "<f8") == [[1.1]]
    assert why(mapping(inputs={"x": entry}), {"d": True}) == "d: expected a number or a text, got true or false"
    assert why(mapping(inputs={"x": entry}), {"d": "1e39"}).startswith("d: expected a number of at most 3.4")
    assert why(mapping(), {"x": "1.10"}) == "x: expected a number, got a text"


def test_a_decimal_may_be_the_digits_that_connect_writes() -> None:
    """In base64, as Debezium has each column of decimals unless it is told otherwise. A default is a number."""
    entry = {"field": "d", "as": "decimal", "scale": 2}
    assert made(entry, {"d": "Aw=="}, {"d": "/4A="}, of=spec("FP64"), dtype="<f8") == [[0.03], [-1.28]]
    assert made({**entry, "default": 0.5}, {"d": "Aw=="}, {}, of=spec("FP64"), dtype="<f8") == [[0.03], [0.5]]
    mapped = read_objects(mapping(spec("FP64"), reader_of=from_objects, inputs={"x": entry}), {"d": b"\3"})
    assert numbers(mapped.tensors[0], "<f8") == [[0.03]]
    of = mapping(spec("FP64"), inputs={"x": entry})
    assert why(of, {"d": 0.03}) == "d: expected bytes in base64, got a number"
    assert why(of, {"d": "1.10"}) == "d: expected bytes in base64"
    for text in ("", "f" * 400):
        assert why(of, {"d": text}) == f"d: expected {spec('FP64').values}, or the digits of a decimal in base64"


def test_a_whole_number_may_be_a_text() -> None:
    """As the JSON of Protobuf has those of 64 bits; none of its digits is lost."""
    entry, of = {"field": "d", "as": "decimal"}, spec("INT64")
    assert made(entry, {"d": "9007199254740993"}, {"d": -7}, {"d": "-1"}, of=of, dtype="<i8") == [
        [2**53 + 1],
        [-7],
        [-1],
    ]
    assert made({**entry, "default": "3"}, {}, {"d": 2**53 + 1}, of=of, dtype="<i8") == [[3], [2**53 + 1]]
    assert why(mapping(of, inputs={"x": entry}), {"d": 1.5}) == "d: expected a whole number or a text, got a number"
    for wrong in ("", "1.0", "1e3", "1\n", "\u0661", "1_0", "9" * 19, 2**63):
        assert why(mapping(of, inputs={"x": entry}), {"d": wrong}) == f"d: expected {of.values}, or a text such as 110"


_NO_DECIMALS = (
    "",
    "NaN",
    "sNaN",
    "-Infinity",
    "1e400",
    "a lot",
    "1_000",
    " 1",
    "1\n",
    "\uff11",
    "\u0661",
    "1,5",
    "0x1",
    ".",
    "1e",
    "--1",
)


@pytest.mark.parametrize("text", _NO_DECIMALS)
def test_a_text_that_is_no_finite_decimal_is_refused(text: str) -> None:
    """Whatever the model takes, because only a missing number is NaN, and whatever else Python takes for a number."""
    of = mapping(spec("FP64"), inputs={"x": {"field": "d", "as": "decimal"}}, takes_nan=True)
    mapped = read(of, {"d": 1}, {"d": text}, {})
    assert [str(row) for row in numbers(mapped.tensors[0], "<f8")] == ["[1.0]", "[nan]"]
    assert mapped.faults == {1: f"d: expected {spec('FP64').values}, or a text such as 1.10"}


@pytest.mark.parametrize("text", ["1", "-1.5", "+1.", ".5", "007.50", "1E+3", "0e-10", "12345678901234567890.5"])
def test_a_text_in_the_grammar_of_decimals_is_taken(text: str) -> None:
    """As BigDecimal writes it, or XML; the contract's pattern takes the same texts, and none of the others."""
    assert made({"field": "d", "as": "decimal"}, {"d": text}, of=spec("FP64"), dtype="<f8") == [[float(text)]]
    pattern = msgspec.json.schema(_DECIMAL)["pattern"]
    assert re.search(pattern, text)
    assert not [one for one in _NO_DECIMALS if one not in ("1e400", "1\n") and re.search(pattern, one)]


@pytest.mark.parametrize(
    ("entry", "value", "number"),
    [
        ({"as": "ms"}, "2026-01-31T12:00:00Z", 1_769_860_800_000),
        ({"as": "s"}, "2026-01-31T13:00:00.999+01:00", 1_769_860_800),
        ({"as": "us"}, "1969-12-31T23:59:59.999999", -1),
        ({"as": "ms", "epoch": "s"}, 1.5, 1500),
        ({"as": "s", "epoch": "us"}, 2_000_001, 2),
        ({"as": "us", "epoch": "us"}, 2**60, 2**60),
        ({"as": "hour"}, "2026-01-31T23:30:00-02:00", 1),
        ({"as": "weekday"}, "2026-01-31T12:00:00Z", 5),
        ({"as": "month", "epoch": "ms"}, 1_769_860_800_000, 1),
        ({"as": "day", "epoch": "d"}, 20_484, 31),
        ({"as": "d"}, "2026-01-31T23:00:00Z", 20_484),
        ({"as": "ms"}, "2026-01-31", 1_769_817_600_000),
        ({"as": "weekday"}, "2026-01-31", 5),
    ],
)
def test_an_instant_becomes_a_number_or_a_part_of_it(entry: dict[str, str], value: object, number: int) -> None:
    """Texts in ISO 8601, without a zone in UTC, a day from midnight on, and numbers in the unit that is declared."""
    assert made({"field": "at", **entry}, {"at": value}, of=spec("INT64"), dtype="<i8") == [[number]]
    assert made({"field": "at", **entry}, {"at": value}, of=spec("FP64"), dtype="<f8") == [[float(number)]]


def test_an_instant_that_is_none_is_refused() -> None:
    """Out of the calendar, not a date, or too large for the input."""
    hours = mapping(spec("INT64"), inputs={"x": {"field": "at", "as": "hour", "epoch": "s"}})
    assert why(hours, {"at": 1e300}) == "at: expected a number of s since 1970"
    texts = mapping(spec("INT32"), inputs={"x": {"field": "at", "as": "ms"}})
    assert why(texts, {"at": "yesterday"}) == "at: expected an instant such as 2026-01-31T12:00:00Z"
    assert why(texts, {"at": "2026-01-31T12:00:00Z"}) == "at: expected an instant such as 2026-01-31T12:00:00Z"
    for number_type in ("INT64", "FP64"):
        days = mapping(spec(number_type), inputs={"x": {"field": "at", "as": "d"}})
        for wrong in ("2026-1-31", "20260131", 5, None, True, ["2026-01-31"], {"at": "2026-01-31"}):
            assert why(days, {"at": wrong}) == "at: expected an instant such as 2026-01-31T12:00:00Z"


def test_instants_of_other_encodings_are_taken_as_they_are() -> None:
    """Avro has days and instants of its own; a missing one is NaN where the model takes that."""
    of = mapping(spec("FP64"), reader_of=from_objects, takes_nan=True, inputs={"x": {"field": "at", "as": "d"}})
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    mapped = read_objects(of, {"at": noon.date()}, {"at": noon}, {"at": "2026-01-31"}, {}, {"at": b"2026-01-31"})
    assert str(numbers(mapped.tensors[0], "<f8")) == "[[20484.0], [20484.0], [20484.0], [nan]]"
    assert mapped.faults == {4: "at: expected an instant such as 2026-01-31T12:00:00Z"}


def test_names_stand_for_numbers() -> None:
    """By their place in a list, or as a table says. Another name is refused, and is not quoted."""
    assert made({"field": "c", "names": ["web", "app"]}, {"c": "app"}, {"c": "web"}) == [[1], [0]]
    few = mapping(spec("INT8"), inputs={"x": {"field": "c", "names": {"web": 3, "app": 4}}})
    assert why(few, {"c": "secret"}) == "c: expected one of web, app"
    many = mapping(inputs={"x": {"field": "c", "names": list("abcdefghij")}})
    assert why(many, {"c": "z"}) == "c: expected one of a, b, c, d, e, f, g, h, …"


# Missing values


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_named_by_its_field(datatype: str, value: float) -> None:
    """JSON has none, Avro and Protobuf do. The model may take it."""
    of = partial(mapping, spec(datatype), spec(datatype, None, name="b"), reader_of=from_objects, inputs={"b": "b[*]"})
    given: list[Given] = [{"x": 1.0, "b": [0.5, value]}, {"x": value, "b": [0.5]}]

    faults = read_objects(of(), *given).faults

    assert [faults[at].partition(" of at most")[0] for at in (0, 1)] == [
        "b[*]: expected a number",
        "x: expected a number",
    ]
    assert not read_objects(of(takes_nan=True), *given).faults


def test_a_missing_number_is_nan_where_the_model_takes_it() -> None:
    """For floats alone, and only if the operator says so."""
    values: list[object] = [{"x": None}, {}, {"x": 1}]
    for entry in ("x", {"field": "x", "as": "decimal"}):
        mapped = read(mapping(inputs={"x": entry}, takes_nan=True), *values)
        assert np.isnan(numbers(mapped.tensors[0])[:2]).all()
    instants = read(mapping(inputs={"x": {"field": "x", "as": "ms"}}, takes_nan=True), {})
    assert np.isnan(numbers(instants.tensors[0])).all()
    assert why(mapping(), {}) == "x: missing"
    assert why(mapping(spec("INT64"), takes_nan=True), {}) == "x: missing"


@pytest.mark.parametrize(
    ("of", "entry", "got"),
    [
        (spec("INT64"), {"default": -1}, -1),
        (spec("FP64"), {"default": 0}, 0),
        (spec("FP64"), {"default": 1.5, "as": "decimal"}, 1.5),
        (spec("BOOL"), {"default": False}, False),
        (spec("INT64"), {"default": "app", "names": ["web", "app"]}, 1),
        (spec("FP64"), {"default": "1.50", "as": "decimal"}, 1.5),
        (spec("INT64"), {"default": 5, "as": "ms", "epoch": "s"}, 5000),
        (spec("INT64"), {"default": "1970-01-01T00:00:05+00:00", "as": "ms"}, 5000),
        (spec("INT64"), {"default": "1970-01-02", "as": "s"}, 86_400),
        (spec("INT64"), {"default": "1970-01-02", "as": "day"}, 2),
    ],
)
def test_a_missing_value_has_its_default(of: Any, entry: dict[str, Any], got: object) -> None:
    """Missing and null are one."""
    assert made({"field": "f", **entry}, {}, {"f": None}, of=of, dtype=of.dtype.str) == [[got]] * 2


def test_an_input_that_may_be_left_out_has_the_models_default() -> None:
    """As in a request (`MODEL__INPUT_DEFAULTS`)."""
    assert made("x", {"x": 2}) == [[2]]
    mapped = read(mapping(spec("INT64", default=7)), {}, {"x": 1})
    assert numbers(mapped.tensors[0], "<i8") == [[7], [1]]


@pytest.mark.parametrize(
    ("of", "entry"),
    [
        (spec(), {"default": "none"}),
        (spec("INT8"), {"default": 300}),
        (spec("INT8"), {"default": True}),
        (spec("BOOL"), {"default": 1}),
        (spec("BYTES"), {"default": 1}),
        (spec("INT64"), {"default": "tv", "names": ["web"]}),
        (spec("INT64"), {"default": 5, "as": "ms"}),
        (spec("INT64"), {"default": "soon", "as": "ms"}),
        (spec("INT64"), {"default": True, "as": "ms"}),
        (spec("INT64"), {"default": "5", "as": "ms", "epoch": "s"}),
        (spec("INT64"), {"default": math.nan, "as": "ms", "epoch": "s"}),
        (spec("INT8"), {"default": "1970-01-02", "as": "s"}),
        (spec(), {"default": "1_000", "as": "decimal"}),
        (spec(), {"default": 1, "as": "boolean"}),
        (spec("INT64"), {"default": 1, "names": ["web"]}),
    ],
)
def test_a_default_of_another_type_is_refused(of: Any, entry: dict[str, Any]) -> None:
    """At start, not with the first record that needs it."""
    with pytest.raises(BadConfiguration, match=r"x: default does not fit; expected "):
        mapping(of, inputs={"x": {"field": "f", **entry}})


# Arrays


def test_the_fields_of_an_arrays_elements_are_a_dynamic_axis() -> None:
    """One number for each element, or several side by side."""
    values = ({"items": [{"p": 1, "q": 2}, {"p": 3, "q": 4}]}, {"items": [{"p": 5, "q": 6}]})
    one = read(mapping(spec("FP32", None), inputs={"x": "items[*].p"}), *values)
    assert (numbers(one.tensors[0]), one.dims) == ([[1, 3], [5]], [[(2,), (1,)]])
    two = read(mapping(spec("FP32", None, 2), inputs={"x": ["items[*].p", "items[*].q"]}), *values)
    assert (numbers(two.tensors[0]), two.dims) == ([[1, 2, 3, 4], [5, 6]], [[(2, 2), (1, 2)]])
    texts = read(mapping(spec("BYTES", None), inputs={"x": "tags[*]"}), {"tags": ["a", "b"]})
    assert list(texts.tensors[0]) == [["a", "b"]]


def test_an_array_must_have_the_length_that_the_model_takes() -> None:
    """Some length, and never none."""
    fixed = mapping(spec("FP32", 3), inputs={"x": "tags[*]"})
    assert why(fixed, {"tags": [1, 2]}) == "tags[*]: expected 3 elements, got 2"
    assert why(mapping(spec("FP32", None), inputs={"x": "tags[*]"}), {"tags": []}) == (
        "tags[*]: expected one or more elements, got 0"
    )


def test_an_element_of_an_array_may_miss() -> None:
    """As any other field."""
    of = mapping(spec("FP32", None), takes_nan=True, inputs={"x": "tags[*]"})
    assert np.isnan(numbers(read(of, {"tags": [1, None]}).tensors[0])[0]).tolist() == [False, True]
    items = mapping(spec("FP32", None), inputs={"x": {"field": "items[*].p", "default": 9}})
    assert numbers(read(items, {"items": [{}, {"p": 1}]}).tensors[0]) == [[9, 1]]


@pytest.mark.parametrize("array", [{"x": []}, {"x": None}, {}])
def test_an_array_of_any_length_that_misses_has_one_default(array: dict[str, Any]) -> None:
    """A new customer has no history, and no axis may be empty."""
    of = mapping(spec("INT64", None), inputs={"x": {"field": "x", "default": 7}})
    mapped = read(of, {"x": [1, None, 3]}, array)
    assert (numbers(mapped.tensors[0], "<i8"), mapped.dims) == ([[1, 7, 3], [7]], [[(3,), (1,)]])


def test_an_array_of_objects_that_is_empty_has_one_default() -> None:
    """Where each of its fields has one."""
    one, two = {"field": "items[*].p", "default": 7}, {"field": "items[*].q", "default": 8}
    items = [{"items": [{"p": 1, "q": 2}]}, {"items": []}]
    of = mapping(spec("FP32", None, 2), inputs={"x": [one, two]})
    assert numbers(read(of, *items).tensors[0]) == [[1, 2], [7, 8]]
    half = mapping(spec("FP32", None, 2), inputs={"x": [one, "items[*].q"]})
    assert why(half, items[1]) == "items[*].p: expected one or more elements, got 0"


def test_an_empty_array_of_a_row_has_one_default() -> None:
    of = mapping(spec("FP32", None), rows="items", inputs={"x": {"field": "items[*].v", "default": 7}})
    assert numbers(read(of, {"items": [{"v": []}, {}, {"v": [1]}]}).tensors[0]) == [[7, 7, 1]]


def test_the_models_default_makes_no_array() -> None:
    """It would be as long as the other inputs."""
    of = mapping(spec("INT64", None, default=1))
    assert why(of, {"x": []}) == "x: expected one or more elements, got 0"
    assert why(of, {}) == "x: missing"


def test_a_field_may_be_an_array_of_the_rows_dimensions() -> None:
    """Lists of lists have the shape of the input; where a dimension is open, each record its own."""
    of = mapping(spec("FP32", None, 2))
    mapped = read(of, {"x": [[1, 2], [3, 4]]}, {"x": [[5, 6]]})
    assert (numbers(mapped.tensors[0]), mapped.dims) == ([[1, 2, 3, 4], [5, 6]], [[(2, 2), (1, 2)]])
    uneven: list[object] = [[[1, 2], [3]], [[1]], [], [[]]]
    for bad in uneven:
        assert why(of, {"x": bad}) == "x: expected an array of shape [any, 2]"
    assert why(of, {"x": [[1, "secret"]]}) == "x[0][1]: expected a number, got a text"
    nan = read(mapping(spec("FP32", 2), takes_nan=True), {"x": [None, 1]})
    assert np.isnan(numbers(nan.tensors[0])[0]).tolist() == [True, False]


# Rows


def test_the_elements_of_an_array_may_be_the_rows() -> None:
    """Their fields have a value for each row, and the record's other fields are repeated."""
    inputs = [spec(name="p"), spec("BYTES", name="t"), spec(name="c"), spec("FP32", None, name="v")]
    of = mapping(
        *inputs, rows="items", inputs={"c": "c", "t": {"value": "s"}, "v": "tags[*]", "p": {"field": "items[*].p"}}
    )
    items = [{"p": 1}, {"p": 2}]
    mapped = read(of, {"items": items, "c": 7, "tags": [5, 6]}, {"items": items[:1], "c": 8, "tags": [4]})
    assert mapped.rows == [2, 1]
    assert numbers(mapped.tensors[0]) == [[1, 2], [1]]
    assert list(mapped.tensors[1]) == [["s", "s"], ["s"]]
    assert numbers(mapped.tensors[2]) == [[7, 7], [8]]
    assert numbers(mapped.tensors[3]) == [[5, 6, 5, 6], [4]]


def test_rows_match_by_name_and_may_hold_texts_and_arrays() -> None:
    """Without an entry an input takes the field of the rows."""
    of = mapping(spec("BYTES", name="t"), spec("FP32", None, name="v"), rows="items[*]")
    items = [{"t": "a", "v": [1, 2]}, {"t": "b", "v": [3, 4]}]
    mapped = read(of, {"items": items})
    assert list(mapped.tensors[0]) == [["a", "b"]]
    assert (numbers(mapped.tensors[1]), mapped.dims[1]) == ([[1, 2, 3, 4]], [(2,)])
    items[1]["v"] = [3]
    assert why(of, {"items": items}) == "items[*].v: expected arrays of one shape in all rows"
    constant = mapping(spec("BYTES", 2, name="t"), spec(name="y"), rows="items", inputs={"t": {"value": "s"}})
    assert list(read(constant, {"items": [{"y": 1}]}).tensors[0]) == [["s", "s"]]


def test_a_fault_in_a_row_is_its_records() -> None:
    """Neighbours keep their tensors."""
    mapped = read(mapping(spec("FP32", name="p"), rows="items"), {"items": [{"p": 1}, {"p": 1e300}]}, {"items": []})
    assert mapped.good == []
    assert sorted(mapped.faults) == [0, 1]
    assert mapped.faults[1] == "items: expected an array with an element"
    arrays = mapping(spec("FP32", None, name="v"), spec("FP32", 2, name="w"), rows="items", inputs={"w": "w"})
    mapped = read(
        arrays, {"items": [{"v": [1]}], "w": [2, 3]}, {"items": [{"v": [1]}], "w": [2]}, {"items": [], "w": [2, 3]}
    )
    assert mapped.faults == {1: "w: expected 2 elements, got 1", 2: "items: expected an array with an element"}
    assert [numbers(column) for column in mapped.tensors] == [[[1]], [[2, 3]]]


def test_a_record_repeats_no_more_than_a_bounded_number_of_elements() -> None:
    """Else a small record with many rows, each of which has a long array, takes all memory."""
    rows, length = 2, MOST_REPEATED // 2
    long: dict[str, Any] = {"items": [{}] * rows, "v": [1] * length, "w": [{"n": 1}] * length}
    for entry, path in (("v", "v"), ("w[*].n", "w[*].n")):
        of = mapping(spec("FP32", None), rows="items", inputs={"x": entry})
        longer = {name: [*items, items[-1]] for name, items in long.items()}
        mapped = read(of, long, longer, {"items": [{}], "v": [2], "w": [{"n": 2}]})
        assert mapped.faults == {1: f"{path}: expected at most 131,072 elements in all rows of the record"}
        assert list(map(len, mapped.tensors[0])) == [4 * MOST_REPEATED, 4]
    constant = mapping(spec("FP32", length), rows="items", inputs={"x": {"value": 1}})
    assert list(read(constant, long).good) == [0]
    assert why(constant, {"items": [{}] * 3}).startswith("x: expected at most 131,072 elements")


# What is around


def test_what_is_around_a_value_can_be_a_field() -> None:
    """The key, the timestamp, the topic and headers; the last header of a name counts."""
    inputs = [spec("BYTES", name=name) for name in ("key", "topic", "header")] + [spec("INT64", name="at")]
    entries = {"key": "$key", "topic": "$topic", "header": "$headers.kind", "at": "$timestamp"}
    of = mapping(*inputs, reader_of=None, inputs=entries)
    mapped = of.read([b"anything"], [record(b"anything", headers=[("Kind", b"a"), ("kind", b"b")])])
    assert [list(column) for column in mapped.tensors[:3]] == [[["k"]], [["payments"]], [["b"]]]
    assert numbers(mapped.tensors[3], "<i8") == [[1_700_000_000_000]]


def test_a_number_in_a_key_is_a_text_there() -> None:
    """And what is missing or wrong around a value is the record's fault."""
    of = mapping(spec("INT64"), spec(name="y"), inputs={"x": "$key"})
    records = [record({"y": 1}, at, key) for at, key in enumerate([b"7", None, b"seven", b"\xff"])]
    mapped = of.read([b'{"y": 1}'] * 4, records)
    assert (mapped.good, numbers(mapped.tensors[0], "<i8")) == ([0], [[7]])
    assert mapped.faults == {
        1: "$key: missing",
        2: "$key: expected a whole number, got a text",
        3: "$key: not UTF-8",
    }
    hour = mapping(spec("INT64"), inputs={"x": {"field": "$timestamp", "as": "hour"}})  # its unit is Kafka's
    assert numbers(read(hour, {}).tensors[0], "<i8") == [[22]]
    optional = mapping(inputs={"x": {"field": "$headers.h", "default": 3}}, reader_of=None)
    assert numbers(optional.read([b""], [record(b"")]).tensors[0]) == [[3]]


@pytest.mark.parametrize(
    ("datatype", "text", "expected"),
    [
        ("FP64", "1.5e1", 15.0),
        ("FP64", "nan", "expected a number, got a text"),
        ("FP64", " 1 ", "expected a number, got a text"),
        ("FP64", "1e999", "number out of range"),
        ("FP64", "true", "expected a number, got true or false"),
        ("INT64", "07", "expected a whole number, got a text"),
        ("INT64", "1.0", "expected a whole number, got a number"),
        ("BOOL", "true", True),
        ("BOOL", "1", "expected true or false, got a whole number"),
    ],
)
def test_a_text_in_a_header_is_a_number_as_json_writes_it(datatype: str, text: str, expected: object) -> None:
    """The types are as strict there as in a record."""
    of = mapping(spec(datatype), inputs={"x": "$headers.h"}, reader_of=None)
    mapped = of.read([b""], [record(b"", headers=[("h", text.encode())])])
    if isinstance(expected, str):
        assert mapped.faults == {0: f"$headers.h: {expected}"}
    else:
        assert numbers(mapped.tensors[0], spec(datatype).dtype.str) == [[expected]]


def test_the_value_itself_is_a_text_or_bytes() -> None:
    """Without fields in it."""
    of = mapping(spec("BYTES", name="text"), reader_of=None, text={"field": "$value", "pair": None})
    assert list(of.read([b"body"], [record(b"body")]).tensors[0]) == [["body"]]
    picture = mapping(spec("BYTES", name="image"), reader_of=None, image={"field": "$value"})
    [image] = picture.read([b"\xff\xd8"], [record(b"\xff\xd8")]).tensors
    assert str(list(image)) == str([[b"\xff\xd8"]])


@pytest.mark.parametrize(
    ("section", "needs"),
    [
        ({}, "x is one"),
        ({"only": {"a": 1}, "inputs": {"x": "$key"}}, "a is one"),
        ({"answer": {"keep": "all"}, "inputs": {"x": "$key"}}, 'keep = "all" needs some'),
        ({"envelope": "payload", "inputs": {"x": "$key"}}, "envelope needs some"),
    ],
)
def test_a_value_without_fields_is_refused_where_fields_are_named(section: dict[str, Any], needs: str) -> None:
    with pytest.raises(BadConfiguration, match=rf"a text and bytes have no fields, and .*{needs}"):
        mapping(reader_of=None, **section)


# Prepared inputs


def test_pictures_and_texts_are_fields_for_the_model_to_prepare() -> None:
    """A picture is base64 in JSON."""
    inputs = [spec("BYTES", name=name) for name in ("text", "text_pair", "image")]
    of = mapping(*inputs, text={"field": "q", "pair": "doc.a"}, image={"field": "photo"})
    mapped = read(of, {"q": "why", "doc": {"a": "so"}, "photo": "/9g="})
    assert [list(column) for column in mapped.tensors] == [[["why"]], [["so"]], [[b"\xff\xd8"]]]
    assert why(of, {"q": "", "doc": {"a": ""}, "photo": ""}) == "photo: expected a picture, got nothing"


@pytest.mark.parametrize(("encoding", "value"), [("text", "a,b"), ("bytes", b"a,b")])
def test_a_function_takes_a_value_without_fields_by_its_name(encoding: str, value: object) -> None:
    of = mapping(spec("BYTES", name="record"), reader_of=None, encoding=encoding, functions="functions.py")
    [values] = read(of, b"a,b").tensors
    assert str(list(values)) == str([[{"$value": value}]])


def test_a_text_that_is_not_utf_8_does_not_reach_a_function() -> None:
    of = mapping(spec("BYTES", name="record"), reader_of=None, encoding="text", functions="functions.py")
    assert why(of, b"\xff") == "$value: not UTF-8"


def test_a_function_takes_the_whole_record() -> None:
    """An input of that name is a field otherwise."""
    of = mapping(spec("BYTES", name="record"), functions="functions.py")
    [whole] = read(of, {"a": [1, {"b": None}]}).tensors
    assert str(list(whole)) == str([[{"a": [1, {"b": None}]}]])
    assert list(read(mapping(spec("BYTES", name="record")), {"record": "r"}).tensors[0]) == [["r"]]
    with pytest.raises(BadConfiguration, match="takes a whole record"):
        mapping(spec("BYTES", name="record"), functions="functions.py", rows="items")


def test_a_whole_record_that_nests_too_deeply_is_refused() -> None:
    """The worker's process could not send it to the model's, and would end."""
    of = mapping(spec("BYTES", name="record"), functions="functions.py")
    lists, objects = "[" * (DEEPEST - 1) + "]" * (DEEPEST - 1), '{"a":' * DEEPEST + "1" + "}" * DEEPEST

    assert why(of, f'{{"a":[{lists}]}}'.encode()) == f"the record is nested too deeply: more than {DEEPEST} levels"
    assert read(of, f'{{"a":{lists}}}'.encode(), objects.encode()).good == range(2)


# Envelopes, kinds, what is kept


def test_a_record_may_lie_in_an_envelope() -> None:
    """Debezium's and Connect's; a record without it is refused, and paths are those inside."""
    of = mapping(envelope="payload.after", answer={"keep": "all"})
    mapped = read(of, {"payload": {"after": {"x": 1}}}, {"payload": {}}, {"payload": {"after": {}}})
    assert (mapped.good, mapped.kept) == ([0], [b'{"x": 1}'])
    assert mapped.faults == {1: "payload.after: missing", 2: "x: missing"}
    objects = mapping(envelope="payload", reader_of=from_objects)
    assert numbers(read_objects(objects, {"payload": {"x": 1}}, {}).tensors[0]) == [[1]]


def test_an_envelope_with_null_is_a_null_value() -> None:
    """As of a row that was deleted: refused, or passed over where null values are skipped."""
    values: list[dict[str, Any]] = [{"after": None}, {"after": {"x": 1}}, {}]
    mapped = read(mapping(envelope="after"), *values)
    assert mapped.faults == {0: "after: expected a record, got null", 2: "after: missing"}
    mapped = read(mapping(envelope="after", skips_null=True), *values)
    assert (mapped.good, mapped.passed_over, mapped.faults) == ([1], [0], {2: "after: missing"})
    objects = mapping(envelope="after", reader_of=from_objects, skips_null=True)
    assert read_objects(objects, *values).passed_over == [0]


def test_an_envelope_that_cannot_be_read_is_a_fault_whatever_kinds_count() -> None:
    """Nobody can know its kind."""
    of = mapping(envelope="after", only={"type": ["payment"]})
    mapped = read(of, b"[", {"after": {"type": "payment", "x": 1}}, {"after": {"type": "login"}})
    assert (mapped.good, mapped.passed_over, sorted(mapped.faults)) == ([1], [2], [0])


def test_records_of_other_kinds_are_passed_over() -> None:
    """They lack what the mapping wants, and are no faults; a record of ours that is wrong is one."""
    of = mapping(only={"type": ["payment", "refund"], "v.n": 2})
    ours = {"type": "payment", "v": {"n": 2}}
    mapped = read(of, {**ours, "x": 1}, {"type": "login"}, {**ours}, {**ours, "type": "other", "x": 1}, b"[", b"{}")
    assert (mapped.good, mapped.passed_over, sorted(mapped.faults)) == ([0], [1, 3, 5], [2, 4])


def test_true_is_another_kind_than_1() -> None:
    """As it is in JSON; 1.0 is 1."""
    values = [{"x": 1, "n": kind} for kind in (1, 1.0, True, 0, False, "1")]
    assert read(mapping(only={"n": 1}), *values).good == [0, 1]
    assert read(mapping(only={"n": [True, 0]}), *values).good == [2, 3]


def test_what_is_around_a_value_may_tell_its_kind() -> None:
    """A header, of JSON and of texts. A record without it is of another kind, and so is one whose text is none."""

    def kept(*, reader_of: ReaderOf | None, **section: Any) -> tuple[Sequence[int], Sequence[int], Mapping[int, str]]:
        of = mapping(only={"$headers.type": "payment", **only}, reader_of=reader_of, **section)
        heads = [[("Type", b"payment")], [("type", b"login")], [("type", b"\xff")], [], [("type", b"payment")]]
        values = [b'{"x":1,"n":1}', b"[", b"{}", b"{}", b"{}"]
        mapped = of.read(values, [record(value, headers=head) for value, head in zip(values, heads, strict=True)])
        return mapped.good, mapped.passed_over, mapped.faults

    only: dict[str, Any] = {}
    assert kept(reader_of=from_json) == ([0], [1, 2, 3], {4: "x: missing"})
    assert kept(reader_of=None, inputs={"x": "$timestamp"}) == ([0, 4], [1, 2, 3], {})
    only = {"n": 1}
    assert kept(reader_of=from_json)[0] == [0]
    assert kept(reader_of=from_json, envelope="after")[1] == [1, 2, 3]


def test_kept_fields_are_as_they_came() -> None:
    """In JSON digit for digit; a missing one is null."""
    of = mapping(answer={"keep": ["id", "c.country"], "score": "y"})
    mapped = read(of, {"x": 1}, b'{"x": 2, "id": 12345678901234567890123, "c": {"country": "NL"}}')
    assert of.keep == ("id", "country")
    assert mapped.kept is not None
    assert [[bytes(value) for value in kept] for kept in mapped.kept] == [
        [b"null", b"null"],
        [b"12345678901234567890123", b'"NL"'],
    ]
    objects = mapping(reader_of=from_objects, answer={"keep": ["id"], "score": "y"})
    assert read_objects(objects, {"x": 1, "id": Decimal(1)}, {"x": 1}).kept == [(Decimal(1),), (None,)]


def test_the_whole_record_may_be_kept_if_no_name_clashes() -> None:
    """Its own text; a record that has the answer's field already is refused."""
    of = mapping(answer={"keep": "all", "score": "y"})
    mapped = read(of, b'{ "x": 1.50 }', {"x": 1, "score": None})
    assert (mapped.good, mapped.kept) == ([0], [b'{ "x": 1.50 }'])
    assert mapped.faults == {1: "score: the record has this field, and the answer adds it"}
    objects = mapping(reader_of=from_objects, answer={"keep": "all", "score": "y"})
    assert read_objects(objects, {"x": 1}, {"x": 1, "score": 1}).kept == [{"x": 1}]


def test_the_answers_key_may_be_a_field() -> None:
    """A text or a whole number."""
    of = mapping(key="id")
    mapped = read(of, {"x": 1, "id": "a"}, {"x": 1, "id": 7}, {"x": 1, "id": 1.5}, {"x": 1})
    assert (mapped.good, mapped.keys) == ([0, 1], [b"a", b"7"])


def test_everything_of_a_refused_record_is_left_out() -> None:
    """Columns stay beside one another."""
    of = mapping(
        spec(), spec("FP32", None, name="v"), key="id", rows=None, answer={"keep": ["id"]}, inputs={"v": "v[*]"}
    )
    mapped = read(of, *[{"x": 1e300 if at == 1 else at, "id": at, "v": [at]} for at in range(3)])
    assert (mapped.good, mapped.keys, numbers(mapped.tensors[1])) == ([0, 2], [b"0", b"2"], [[0], [2]])
    assert mapped.dims[1] == [(1,), (1,)]
    assert mapped.kept is not None
    assert [bytes(kept[0]) for kept in mapped.kept] == [b"0", b"2"]
    rows = mapping(spec(name="p"), rows="items")
    assert read(rows, {"items": [{"p": 1e300}]}, {"items": [{"p": 1}] * 3}).rows == [3]


# Refused at start


WRONG_SCALES: Sequence[Mapping[str, object]] = [
    {},
    {"as": "ms"},
    *[{"as": "decimal", "scale": wrong} for wrong in (True, -1, 1001, "2")],
]


@pytest.mark.parametrize(
    ("of", "section", "told"),
    [
        (spec(), {"inputs": {"y": "a"}}, r"\[records.inputs\] y: the model takes x FP32\[batch\]"),
        (spec(), {"inputs": {"x": {"value": "s"}}}, r"\[records.inputs\] x: 's' is not a number"),
        (spec("FP32", None), {"inputs": {"x": {"value": 1}}}, "a constant fills fixed dimensions"),
        (spec("FP32", 3), {"inputs": {"x": ["a", "b"]}}, "2 fields are given, and the model takes x FP32"),
        (spec(), {"inputs": {"x": ["a", "b"]}}, "2 fields are given"),
        (spec("FP32", 2, 2), {"inputs": {"x": ["a", "b"]}}, "2 fields are one dimension"),
        (spec("FP32", 2), {"inputs": {"x": ["a[*].b", "c"]}}, "must all come from one array"),
        (spec(), {"inputs": {"x": "a[*].b"}}, "an array of any length is one dimension"),
        (spec("FP32", 2), {"inputs": {"x": "$key"}}, r"\$key is one element"),
        (spec("BYTES"), {"inputs": {"x": {"field": "a", "names": ["b"]}}}, "names give numbers"),
        (spec("UINT8"), {"inputs": {"x": {"field": "a", "names": {"b": 256}}}}, "names: each number must be a whole"),
        (spec("BYTES"), {"inputs": {"x": {"field": "a", "as": "decimal"}}}, "gives no BYTES"),
        (spec("INT64"), {"inputs": {"x": {"field": "a", "as": "decimal", "scale": 2}}}, "gives no INT64"),
        *[
            (spec(), {"inputs": {"x": {"field": "a", "scale": 2, **given}}}, "scale is a whole number up to 1000, and")
            for given in WRONG_SCALES
        ],
        (spec(), {"rows": "$key"}, "is no array of the record"),
        (spec(), {"key": "items[*].id"}, r"\[records\] key: items\[\*\].id goes through an array"),
        (spec(), {"only": {"items[*].id": 1}}, r"\[records\] only: items\[\*\].id goes through an array"),
        (spec(), {"envelope": "a[*]"}, r"\[records\] envelope: a\[\*\] goes through an array"),
        (spec(), {"envelope": "$value"}, r"\[records\] envelope: \$value is no field of the value"),
        (spec("BYTES", name="image"), {"image": {"field": "a[*].b"}}, "and a row has one picture"),
        (spec(), {"only": {"a": []}}, "only: a must have a list of values"),
        (spec(), {"only": {"a": [[1]]}}, "only: a must have a list of values"),
        (spec(), {"answer": {"keep": "id"}}, 'expected "all", or a list'),
        (spec(), {"answer": {"keep": ["a.id", "b.id"]}}, "two fields are called 'id'"),
        (spec(), {"answer": {"keep": ["a[*].id"]}}, "is no field of the record itself; keep its array"),
        (spec(), {"answer": {"keep": ["score"], "score": "y"}}, "the answer has a field 'score' already"),
        (spec(), {"answer": {"keep": ["y"]}}, "the answer has a field 'y' already"),
    ],
)
def test_a_mapping_that_cannot_work_is_refused_at_start(of: Any, section: dict[str, Any], told: str) -> None:
    """The refusal names the entry, and what the model takes."""
    with pytest.raises(BadConfiguration, match=told):
        mapping(of, **section)


def test_kept_raw_values_are_json() -> None:
    """The writer of answers encodes them as they are."""
    mapped = read(mapping(answer={"keep": ["id"]}), b'{"x": 1, "id": 1.10}')
    assert mapped.kept is not None
    assert msgspec.json.encode(mapped.kept[0]) == b"[1.10]"

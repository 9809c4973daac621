"""Inputs of plain numbers are made at once, and give what each would give by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.unit.codecs.records.builders import mapping, numbers, read, spec
from worker.codecs.records.mapping import RecordMapping

DEFAULTS = {"b": {"field": "b", "default": 7}, "n": {"field": "n", "default": 9}}


def mixed(**section: Any) -> RecordMapping:
    """Three FP32, two INT64 and a text, in turn."""
    kinds = {"a": "FP32", "n": "INT64", "b": "FP32", "t": "BYTES", "m": "INT64", "c": "FP32"}
    return mapping(*[spec(kind, 1, name=name) for name, kind in kinds.items()], inputs=DEFAULTS, **section)


def test_inputs_that_alternate_in_their_datatypes_keep_their_own_fields() -> None:
    """Each input has its field's values, and the default of a missing one."""
    first = {"a": 1.5, "b": 2.5, "c": 3, "n": 1, "m": 2, "t": "x"}

    mapped = read(mixed(), first, {"a": 4, "c": 5.5, "m": 2**63 - 1, "t": "y"})

    assert [numbers(mapped.tensors[at]) for at in (0, 2, 5)] == [[[1.5], [4]], [[2.5], [7]], [[3], [5.5]]]
    assert [numbers(mapped.tensors[at], "<i8") for at in (1, 4)] == [[[1], [9]], [[2], [2**63 - 1]]]
    assert list(mapped.tensors[3]) == [["x"], ["y"]]
    assert mapped.dims == [(1,)] * 6


def test_a_missing_number_is_nan_where_the_model_takes_it() -> None:
    """Among others of its datatype, too."""
    of = mapping(spec(name="a"), spec(name="b"), takes_nan=True)

    mapped = read(of, {"a": 1, "b": None}, {"b": 2})

    assert numbers(mapped.tensors[0])[0] == [1.0]
    assert math.isnan(numbers(mapped.tensors[0])[1][0])
    assert math.isnan(numbers(mapped.tensors[1])[0][0])


@pytest.mark.parametrize(("field", "value"), [("b", 1e300), ("m", 2**70), ("n", -(2**70))])
def test_a_wrong_number_is_the_fault_of_its_own_field_and_record(field: str, value: float) -> None:
    """Its neighbours are read."""
    good = {"a": 1.5, "b": 2.5, "c": 3, "n": 1, "m": 2, "t": "x"}

    mapped = read(mixed(), good, good | {field: value}, good | {"a": 8})

    assert mapped.good == [0, 2]
    assert list(mapped.faults) == [1]
    assert mapped.faults[1].startswith(f"{field}: expected a ")
    assert numbers(mapped.tensors[0]) == [[1.5], [8]]


def test_rows_of_one_record_are_made_one_input_after_the_other() -> None:
    """Records of several rows keep these together."""
    of = mapping(spec(name="a"), spec(name="b"), rows="items", inputs={"a": "items[*].a", "b": "b"})

    mapped = read(of, {"b": 5, "items": [{"a": 1}, {"a": 2}]}, {"b": 6, "items": [{"a": 3}]})

    assert [numbers(column) for column in mapped.tensors] == [[[1, 2], [3]], [[5, 5], [6]]]


def test_booleans_and_numbers_of_one_datatype_are_made_together() -> None:
    """A declared boolean is 0 or 1 beside a number."""
    of = mapping(spec(name="a"), spec(name="b"), inputs={"a": {"field": "a", "as": "boolean"}})

    mapped = read(of, {"a": True, "b": 0.5}, {"a": False, "b": 1})

    assert [numbers(column) for column in mapped.tensors] == [[[1], [0]], [[0.5], [1]]]
    assert all(np.frombuffer(tensor, "<f4").size == 1 for column in mapped.tensors for tensor in column)  # type: ignore[arg-type]  # bytes

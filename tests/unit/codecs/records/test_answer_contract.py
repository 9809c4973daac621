"""The JSON Schema of answers to records."""

from __future__ import annotations

from worker.codecs.records.answer_contract import json_schema
from worker.core.tensors.specs import TensorSpec

SCORE, LABEL = TensorSpec("score", "FP32", ()), TensorSpec("label", "BYTES", ())


def test_an_answer_has_all_its_fields_and_no_others() -> None:
    """A kept field is of any type, because the record says what it is."""
    assert json_schema([SCORE, LABEL], ["id"]) == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["id", "score", "label"],
        "properties": {"id": {}, "score": {"type": "number"}, "label": {"type": "string"}},
        "additionalProperties": False,
    }


def test_a_kept_record_has_fields_of_its_own() -> None:
    """The schema says nothing of them."""
    schema = json_schema([SCORE], "all")

    assert schema["additionalProperties"] is True
    assert schema["required"] == ["score"]


def test_tensors_are_arrays() -> None:
    """A fixed dimension is a number of items; several rows are an array of entries."""
    grid = TensorSpec("grid", "INT64", (None, 2))
    pairs = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}

    assert json_schema([grid])["properties"]["grid"] == {"type": "array", "items": pairs}
    assert json_schema([SCORE], has_rows=True)["properties"]["score"] == {
        "type": "array",
        "minItems": 1,
        "items": {"type": "number"},
    }


def test_a_float_may_be_null_where_nan_is_allowed() -> None:
    """Whole numbers and texts never are."""
    kinds = json_schema([SCORE, LABEL, TensorSpec("flag", "BOOL", ())], nulls=True)["properties"]

    assert [kind["type"] for kind in kinds.values()] == [["number", "null"], "string", "boolean"]

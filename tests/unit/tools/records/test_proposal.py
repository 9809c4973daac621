"""The fields that are proposed for a model's inputs, and what is said about each."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.unit.tools.records.test_sample import JPEG, records
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.tools.records.inputs import Entry
from worker.tools.records.proposal import Proposal, propose
from worker.tools.records.sample import sample_of

SCORE = TensorSpec("probabilities", "FP32", (2,))


def spec(name: str, datatype: str = "FP32", *dims: int | None) -> TensorSpec:
    return TensorSpec(name, datatype, dims)


def proposed(
    inputs: Sequence[TensorSpec], *values: object, outputs: Sequence[TensorSpec] = (SCORE,), **more: Any
) -> Proposal:
    return propose(Signature("m", "1", tuple(inputs), tuple(outputs)), sample_of(records(*values)), **more)


def inputs(spec: TensorSpec, *values: object, **more: Any) -> Entry:
    """The only entry for an input, of records that have these values in `x`."""
    (entry,) = [one for one in proposed([spec], *values, **more).entries if one.table == "inputs"]
    return entry


@pytest.mark.parametrize("dims", [(), (1,)])
def test_an_input_takes_the_field_of_its_name_at_any_depth(dims: tuple[int, ...]) -> None:
    """A field that most records have comes first, then the equal name, then the one nearest to the record."""
    age = spec("age_days", "FP32", *dims)

    assert inputs(age, {"a": {"age_days": 1}, "age_days": 2}).value == "age_days"
    assert inputs(age, {"a": {"b": {"age_days": 1}}, "c": {"age_days": 1}}).value == "c.age_days"
    assert inputs(age, {"ageDays": 1, "b": {"age_days": 1}}).value == "b.age_days"
    assert inputs(age, {"a": {"ageDays": 1}, "other": 5}).value == "a.ageDays"
    assert inputs(age, {"age_days": 1}, *[{"a": {"age_days": 1}}] * 2).value["field"] == "a.age_days"


def test_a_name_with_a_dot_is_a_list_of_names() -> None:
    """Otherwise it would be read as a path."""
    assert inputs(spec("v.1"), {"v.1": 5}).value == {"field": ["v.1"]}


@pytest.mark.parametrize(
    ("datatype", "value", "more"),
    [
        ("FP32", "12.50", {"as": "decimal"}),
        ("FP32", True, {"as": "boolean"}),
        ("INT64", True, {"as": "boolean"}),
        ("INT64", "2026-01-31T12:00:00Z", {"as": "ms"}),
        ("FP64", "2026-01-31T12:00:00Z", {"as": "s"}),
    ],
)
def test_a_value_of_another_kind_is_converted(datatype: str, value: object, more: Mapping[str, str]) -> None:
    """The conversions are the declared ones."""
    assert inputs(spec("x", datatype), {"x": value}).value == {"field": "x", **more}


def test_the_name_of_an_input_tells_the_part_of_an_instant() -> None:
    """`created_hour` is an hour."""
    entry = inputs(spec("created_hour", "INT64"), {"created_hour": "2026-01-31T12:00:00Z"})

    assert entry.value == {"field": "created_hour", "as": "hour"}


@pytest.mark.parametrize("kinds", [("INT64", 1.5), ("FP32", [1]), ("BOOL", 1), ("BYTES", 1), ("INT64", "a")])
def test_a_field_that_does_not_fit_is_not_taken(kinds: tuple[str, object]) -> None:
    """Its line stays open, and the types are not bent."""
    proposal = proposed([spec("x", kinds[0])], {"x": kinds[1]})

    assert proposal.open == ["x"]
    assert "inputs" not in proposal.section


def test_an_array_counts_by_what_most_of_them_are() -> None:
    """One that is short, and elements that are null, hide no field."""
    usual, odd = [{"x": [0.5, 1.5, 2.5]}] * 3, [{"x": [0.5]}, {"x": [0.5, None, 2.5]}]

    entry = inputs(spec("x", "FP32", 3), *usual, *odd)

    assert entry.value == "x"
    assert entry.said.endswith("An array of another length is refused.")
    assert "another length" not in inputs(spec("x", "FP32", 3), *usual).said
    assert inputs(spec("x", "FP32", 3), usual[0], odd[0]).value is None
    assert inputs(spec("x", "FP32", None), *usual, *odd).value == "x"


def test_a_few_texts_are_names_with_numbers_to_confirm() -> None:
    """The records cannot say which number the training gave each."""
    entry = inputs(spec("x", "INT64"), *[{"x": name} for name in ("web", "app", "web", "app")])

    assert entry.value == {"field": "x", "names": ["app", "web"]}
    assert "The numbers of these names are guessed" in entry.said


@pytest.mark.parametrize(
    ("datatype", "given", "value", "said"),
    [
        ("FP32", 1.5, {"field": "x", "default": 0}, 'non_finite_input = "allow"'),
        ("INT64", 1, {"field": "x", "default": 0}, "The default stands for a missing one: confirm it."),
        ("BYTES", "a", {"field": "x", "default": ""}, "The default stands for a missing one"),
        ("BOOL", True, {"field": "x", "default": False}, "The default stands for a missing one"),
        ("FP32", True, {"field": "x", "as": "boolean", "default": False}, "The default stands for a missing one"),
        ("INT64", "2026-01-31T12:00:00Z", {"field": "x", "as": "ms"}, "A record without it is refused."),
    ],
)
def test_a_field_that_misses_gets_a_default_to_confirm(datatype: str, given: object, value: object, said: str) -> None:
    """No instant stands for a missing one."""
    entry = inputs(spec("x", datatype), {"x": given}, {"x": None})

    assert entry.value == value
    assert said in entry.said
    assert "non_finite_input" not in entry.said or datatype == "FP32"


def test_a_missing_number_is_nan_where_the_model_takes_it() -> None:
    """The operator has declared that."""
    entry = inputs(spec("x"), {"x": 1.5}, {}, takes_nan=True)

    assert entry.value == "x"
    assert "A missing one is NaN." in entry.said


def test_a_vector_takes_the_numeric_fields_if_there_are_as_many() -> None:
    """Ids are left out, and then decimals and booleans are taken, too; the order is to be confirmed."""
    vector = spec("features", "FP32", 2)

    assert inputs(vector, {"b": 1, "a": {"c": 2.5}, "d": "t"}).value == ["b", "a.c"]
    assert "confirm that it is the training's" in inputs(vector, {"b": 1, "a": 2}).said
    assert inputs(vector, {"id": 7, "b": 1, "a": 2}, {"id": 8, "b": 1, "a": 2}).value == ["b", "a"]
    assert inputs(vector, {"id": 7, "b": 1, "is_a": True}).value == ["b", {"field": "is_a", "as": "boolean"}]
    assert inputs(vector, {"id": 7, "b": 1}).value == ["id", "b"]
    assert inputs(vector, {"b": 1, "a": "2.5"}).value == ["b", {"field": "a", "as": "decimal"}]


def test_a_vector_of_another_length_stays_open_and_names_the_fields() -> None:
    """A guess would be wrong in silence."""
    entry = inputs(spec("features", "FP32", 4), {"b": 1, "a": 2, "t": "text"})

    assert entry.value is None
    assert entry.said == "features FP32[batch, 4]: it is not clear which field; could be b, a."


@pytest.mark.parametrize(
    ("dims", "record", "value"),
    [
        ((3,), {"x": [1, 2, 3]}, "x"),
        ((None,), {"x": [1, 2]}, "x"),
        ((None,), {"items": [{"x": 1}, {"x": 2}]}, "items[*].x"),
        ((3,), {"x": [1, 2]}, None),
        ((2,), {"items": [{"x": 1}, {"x": 2}]}, None),
        ((2, 2), {"x": 1}, None),
    ],
)
def test_an_array_feeds_an_axis(dims: tuple[int | None, ...], record: object, value: str | None) -> None:
    """Its length must fit, as far as the sample tells."""
    assert inputs(spec("x", "FP32", *dims), record).value == value


def test_the_last_input_takes_the_only_field_of_its_kind() -> None:
    """Two such fields are a question, and so are two such inputs."""
    country = spec("country", "BYTES", 1)

    assert inputs(country, {"land": "NL", "n": 1}).value == "land"
    assert "No other field fits: confirm it." in inputs(country, {"land": "NL"}).said
    assert inputs(country, {"land": "NL", "city": "Delft"}).value is None
    assert proposed([country, spec("city", "BYTES", 1)], {"land": "NL"}).open == ["country", "city"]


ENCODER = [spec(name, "INT64", None) for name in ("input_ids", "attention_mask")]


def test_an_encoder_takes_the_longest_text() -> None:
    """Its tokens are made of it, with the tokenizer that lies next to the model."""
    proposal = proposed(ENCODER, {"id": "a", "title": "short", "body": "long " * 9}, tokenizer="tokenizer.json")

    assert proposal.section["text"] == {"field": "body", "tokenizer": "tokenizer.json"}
    assert "45 characters on average" in proposal.entries[0].said
    assert proposed(ENCODER, b"a text", has_answer=True).section == {"encoding": "text", "text": {"field": "$value"}}
    assert proposed(ENCODER, {"a": 1}).open == ["text.field"]


def test_a_picture_is_found_in_base64_or_as_the_whole_value() -> None:
    """Where no folder says how it is prepared, ImageNet's numbers are to be confirmed."""
    pixels = spec("pixels", "FP32", 3, 224, 224)
    inside = proposed([pixels], {"photo": base64.b64encode(JPEG).decode()}).section["image"]

    assert (inside["field"], inside["mean"]) == ("photo", [0.485, 0.456, 0.406])
    assert proposed([pixels], JPEG, has_image_steps=True).section["image"] == {"field": "$value"}
    assert proposed([spec("pixels", "UINT8", 224, 224, 3)], JPEG).section["image"] == {"field": "$value"}
    assert proposed([pixels], {"a": 1}).open == ["pixels"]


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        (spec("label", "INT64"), {"label": "label"}),
        (spec("y", "FP32", 3), {"y": "y"}),
        (spec("probabilities", "FP32", 2), {"score": "probabilities[1]"}),
        (spec("logits", "FP32", 5), {"label": {"argmax": "logits"}, "score": {"softmax": "logits", "top": 1}}),
        (spec("last_hidden_state", "FP32", None, 8), {"embedding": {"mean": "last_hidden_state", "normalize": True}}),
    ],
)
def test_an_output_becomes_the_field_that_its_name_suggests(output: TensorSpec, answer: Mapping[str, object]) -> None:
    """A folder says it itself."""
    mask = spec("attention_mask", "INT64", None)

    assert proposed([spec("x"), mask], {"x": 1}, outputs=[output]).section["answer"] == answer
    assert "answer" not in proposed([spec("x")], {"x": 1}, outputs=[output], has_answer=True).section


def test_the_answer_keeps_the_records_id() -> None:
    """Unless a field of the answer has its name, or it misses, or it is not unique."""
    x = spec("x")

    assert proposed([x], {"x": 1, "payment_id": "a"}).section["answer"]["keep"] == ["payment_id"]
    assert proposed([x], {"x": 1, "paymentId": "a"}).section["answer"]["keep"] == ["paymentId"]
    assert "keep" not in proposed([x], {"x": 1, "score": "a"}).section["answer"]
    assert "keep" not in proposed([x], {"x": 1, "id": "a"}, {"x": 1, "id": "a"}).section["answer"]
    assert "keep" not in proposed([x], {"x": 1, "id": 1}, outputs=[spec("id", "INT64")]).section["answer"]


def test_no_line_has_a_value_of_the_records_except_the_names_of_a_choice() -> None:
    """The file may go to others."""
    secret = json.dumps([entry.said for entry in proposed([spec("x"), *ENCODER], {"x": 5, "t": "hidden"}).entries])

    assert "hidden" not in secret

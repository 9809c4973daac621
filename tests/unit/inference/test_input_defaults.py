"""Defaults held against a model's file: what is refused at start, and what a model with them answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import models
from worker.core.failures import BadConfiguration, RunFailure
from worker.core.records import Value
from worker.inference import Model, load
from worker.settings import ModelSettings

BOTH = {"attention_mask": 1, "token_type_ids": 0}


def loaded(model: bytes, folder: Path, defaults: dict[str, Any], **settings: Any) -> Model:
    path = models.save(model, folder)
    return load(ModelSettings(path=path, device="cpu", input_defaults=defaults, **settings), max_batch_size=4)


def refusal(model: bytes, folder: Path, defaults: dict[str, Any]) -> str:
    with pytest.raises(BadConfiguration) as refused:
        loaded(model, folder, defaults)
    return str(refused.value)


def test_the_signature_says_what_may_be_left_out(tmp_path: Path) -> None:
    """In the words that messages, `check` and the log have for the model."""
    signature = loaded(models.text_scores(), tmp_path, BOTH).signature

    assert signature.takes == (
        "input_ids INT64[batch, length], attention_mask INT64[batch, length] (1 if left out), "
        "token_type_ids INT64[batch, length] (0 if left out)"
    )


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("BOOL", False),
        ("INT8", -128),
        ("UINT16", 65_535),
        ("INT64", -(2**63)),
        ("UINT64", 2**64 - 1),
        ("FP16", 65_504),
        ("FP32", 1),
        ("FP32", float("nan")),
        ("FP64", 1e308),
        ("BYTES", ""),
    ],
)
def test_a_value_that_the_datatype_holds_is_taken(datatype: str, value: Value, tmp_path: Path) -> None:
    """An integer stands for a float, as everywhere; NaN is a number that models know for "not measured"."""
    model = loaded(models.identities({"": "FP32", "_more": datatype}), tmp_path, {"x_more": value})

    assert model.signature.inputs[1].default is value


@pytest.mark.parametrize(
    ("datatype", "value", "cure"),
    [
        ("BOOL", 1, "true or false"),
        ("BOOL", "true", "true or false"),
        ("INT8", 128, "a whole number from -128 to 127"),
        ("UINT8", -1, "a whole number from 0 to 255"),
        ("INT64", 1.0, "a whole number from"),
        ("INT64", float("nan"), "a whole number from"),
        ("INT32", True, "a whole number from"),
        ("INT32", "1", "a whole number from"),
        ("FP16", 70_000, "a number of at most 65504"),
        ("FP32", 1e39, "a number of at most 3.4"),
        ("FP64", 10**400, "a number of at most 1.79"),
        ("FP32", False, "a number of at most"),
        ("FP32", "0", "a number of at most"),
        ("BYTES", 0, "a text"),
        ("BYTES", True, "a text"),
    ],
)
def test_a_value_that_the_datatype_cannot_hold_is_refused(
    datatype: str, value: Value, cure: str, tmp_path: Path
) -> None:
    """In one sentence with the variable, the input, and what it may be."""
    message = refusal(models.identities({"": "FP32", "_more": datatype}), tmp_path, {"x_more": value})

    assert f"WORKER_MODEL__INPUT_DEFAULTS: x_more is {datatype} and cannot be {value!r}: give {cure}" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("model", "defaults", "words"),
    [
        (models.text_scores(), {"mask": 1}, r"no input mask, it takes input_ids .*: correct the name, or leave it out"),
        (models.text_scores(), {"input_ids": 0, **BOTH}, r"every input has a default, .*: leave out what each request"),
        (models.mlp(), {"x": 0}, r"every input has a default"),
        (
            models.text_with_lone_axis(),
            {"weights": 1},
            r"nothing says how long axis 1 of weights is .* no other input has an axis named others: give both",
        ),
        (
            models.text_with_lone_axis(named=False),
            {"weights": 1},
            r"nothing says how long axis 1 of weights is .* no other input has 3 dimensions: give both axes one name",
        ),
    ],
)
def test_defaults_that_do_not_fit_the_model_are_refused(
    model: bytes, defaults: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """At start, where that can be known from the file alone."""
    with pytest.raises(BadConfiguration, match=f"WORKER_MODEL__INPUT_DEFAULTS: .*{words}"):
        loaded(model, tmp_path, defaults)


def test_an_axis_that_another_input_tells_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """By its name; or by its place, where the file has no names."""
    assert loaded(models.text_scores(optional_axis="target"), tmp_path, {"attention_mask": 1}).signature.required
    assert loaded(models.text_scores(named=False), tmp_path, BOTH).signature.required


def test_the_warm_up_runs_with_the_defaults(tmp_path: Path) -> None:
    """A default that the model fails on is found at start, and the message says that it was in use."""
    model = models.quotient()

    assert not isinstance(loaded(model, tmp_path, {"b": 3}).probe(), RunFailure)
    with pytest.raises(BadConfiguration, match=r"zeros and of ones, inputs with a default holding that: Div"):
        loaded(model, tmp_path, {"b": 0})


def test_a_blank_row_holds_the_defaults(tmp_path: Path) -> None:
    """So it is one that a request might bring."""
    feeds = loaded(models.text_scores(), tmp_path, BOTH).blank(2)

    assert np.all(feeds["attention_mask"] == 1)
    assert feeds["attention_mask"].dtype == np.int64

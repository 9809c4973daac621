"""The signature that a model's file declares: inputs with rows, constants, defaults, and reasons to refuse it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests import models
from tests.unit.inference.loading import arrays, loaded, refusal
from worker.core.failures import RunFailure
from worker.core.records import Value

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)
PAGE = Path(__file__).parents[3] / "docs/models.md"
BOTH = {"attention_mask": 1, "token_type_ids": 0}


def test_the_signature_says_what_the_model_takes_and_gives(tmp_path: Path) -> None:
    """Names, datatypes and the dimensions after the batch axis are the model's own."""
    signature = loaded(models.two_in_two_out(), tmp_path, name="adder", version="7").signature

    assert (signature.name, signature.version) == ("adder", "7")
    assert signature.takes == "a FP32[batch, 3], b INT64[batch, 2]"
    assert [str(spec) for spec in signature.outputs] == ["total FP32[batch, 1]", "doubled INT64[batch, 2]"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (models.identity("BF16"), "is needed: cast it in the model"),
        (models.scaled(), "input scale has no batch axis"),
        (models.of_unknown_rank(), "input x has no batch axis, or none that the file tells"),
        (models.without_inputs(), "has no inputs"),
        (models.without_outputs(), "has no outputs"),
        (
            models.identities({"": "FP32"}, dims=(0, 2)),
            "x FP32[batch, 0, 2]: a request's tensor may not be empty",
        ),
        (models.identities({"": "FP32"}, dims=(1,) * 8), "at most 8 dimensions"),
        (
            models.identities({"": "FP32", "_more": "FP32"}, fixed={"": 4, "_more": 8}),
            "x [4, 2], x_more [8, 2]: the first",
        ),
        (models.identities({"": "FP32", "_more": "FP32"}, fixed={"_more": 1}), "x_more [1, 2]: the first axis must"),
        (models.fixed_batch(0), "x [0, 3]: the first axis must be dynamic"),
        (models.fixed_batch(4), "x [4, 3]: the first axis must be dynamic"),
        (models.for_rows(8, models.mlp()), "WORKER_MODEL__FIXED_BATCH=pad runs it as it is"),
        (models.for_rows(1, models.mlp()), "runs it as it is, as does WORKER_BATCHING__MAX_BATCH_SIZE=1"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_cause(model: bytes, words: str, tmp_path: Path) -> None:
    """The refusal is one line that names the file."""
    assert words in refusal(model, tmp_path)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (models.fixed_batch(0), "the number of rows is fixed"),
        (models.fixed_batch(4), "the number of rows is fixed"),
        (models.of_unknown_rank(), "an input has no shape"),
        (models.with_loss(), "an output `loss`"),
        (models.lower_case("xx_XX.UTF-8"), "this machine lacks the locale"),
    ],
)
def test_a_finished_file_is_mended_by_the_line_of_the_page(model: bytes, reason: str, tmp_path: Path) -> None:
    """The test runs it as an operator would."""
    assert "docs/models.md" in refusal(model, tmp_path)
    (row,) = [row for row in PAGE.read_text(encoding="utf-8").splitlines() if row.startswith(f"| {reason}")]
    held = onnx.load_from_string(model)

    exec(re.findall("`([^`]+)`", row)[-1], {"onnx": onnx, "model": held})  # noqa: S102  # the page's own words

    assert loaded(bytes(held.SerializeToString()), tmp_path, fixed_batch="pad").warmed_up_at


# ---- Constants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [(), (1,), (2,), (1, 2)])
def test_an_input_without_a_batch_axis_has_the_value_given(dims: tuple[int, ...], tmp_path: Path) -> None:
    """No request brings it, so plain rows of the other input are enough."""
    assert """WORKER_MODEL__INPUT_DEFAULTS='{"scale": …}'""" in refusal(models.scaled(dims), tmp_path)
    model = loaded(models.scaled(dims), tmp_path, input_defaults={"scale": 2.5})

    assert model.signature.takes == "x FP32[batch, 2]"
    assert model.signature.raw_input is not None
    assert np.array_equal(arrays(model.run({"x": ROWS}))[0], 2.5 * ROWS)


def test_a_model_of_a_fixed_number_of_rows_may_have_constants(tmp_path: Path) -> None:
    """Constants are not padded."""
    model = loaded(models.scaled((), rows=4), tmp_path, input_defaults={"scale": 2.0}, fixed_batch="pad")

    assert np.array_equal(arrays(model.run({"x": ROWS}))[0], 2 * ROWS)


def test_an_input_that_requests_bring_is_no_constant(tmp_path: Path) -> None:
    """An input with rows has a default, which a request may overrule, also where all rows are fixed to one."""
    by_rows = loaded(models.scaled(("batch", 1)), tmp_path, input_defaults={"scale": 2.0})
    of_one_row = loaded(models.scaled((1, 1), rows=1), tmp_path, max_batch_size=1, input_defaults={"scale": 2.0})

    for model in (by_rows, of_one_row):
        assert model.signature.takes == "x FP32[batch, 2], scale FP32[batch, 1] (2.0 if left out)"


# ---- Defaults -------------------------------------------------------------------------------------------------------


def test_the_signature_says_what_may_be_left_out(tmp_path: Path) -> None:
    """A blank row holds the defaults, so a request might bring it."""
    model = loaded(models.text_scores(), tmp_path, input_defaults=BOTH)

    assert model.signature.takes == (
        "input_ids INT64[batch, length], attention_mask INT64[batch, length] (1 if left out), "
        "token_type_ids INT64[batch, length] (0 if left out)"
    )
    assert np.all(model.blank(2)["attention_mask"] == 1)
    assert model.blank(2)["attention_mask"].dtype == np.int64


@pytest.mark.parametrize(
    ("datatype", "value", "cure"),
    [
        ("BOOL", 1, "true or false"),
        ("INT8", 128, "a whole number from -128 to 127"),
        ("INT64", 1.0, "a whole number from"),
        ("INT32", True, "a whole number from"),
        ("FP16", 70_000, "a number of at most 65504"),
        ("FP64", 10**400, "a number of at most 1.79"),
        ("BYTES", 0, "a text"),
    ],
)
def test_a_value_that_the_datatype_cannot_hold_is_refused(
    datatype: str, value: Value, cure: str, tmp_path: Path
) -> None:
    """The refusal names the variable, the input, and the allowed values."""
    default = refusal(models.identities({"": "FP32", "_more": datatype}), tmp_path, input_defaults={"x_more": value})

    assert f"WORKER_MODEL__INPUT_DEFAULTS: x_more is {datatype} and cannot be {value!r}: give {cure}" in default


@pytest.mark.parametrize(
    ("model", "defaults", "words"),
    [
        (models.text_scores(), {"mask": 1}, "the model has no input mask, it takes input_ids"),
        (models.text_scores(), {"input_ids": 0, **BOTH}, "every input has a default"),
        (models.quotient(), {"b": 0}, "Div: "),
    ],
)
def test_defaults_that_do_not_fit_the_model_are_refused(
    model: bytes, defaults: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """The refusal comes at start, from the file or from the warm-up."""
    assert words in refusal(model, tmp_path, input_defaults=defaults)


def test_an_axis_that_another_input_tells_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """The axis has an equal name, or an equal place where the file has no names."""
    by_name = models.text_scores(optional_axis="target")
    assert loaded(by_name, tmp_path, input_defaults={"attention_mask": 1}).signature.required
    assert loaded(models.text_scores(named=False), tmp_path, input_defaults=BOTH).signature.required


def test_an_empty_input_that_is_filled_in_is_served(tmp_path: Path) -> None:
    """No request has to bring any of it."""
    model = models.with_empty_past()

    assert "INPUT_DEFAULTS='{\"past\": …}'" in refusal(model, tmp_path)
    assert loaded(model, tmp_path, input_defaults={"past": 0}).signature.raw_input is not None


def test_a_default_may_be_the_value_that_the_model_needs(tmp_path: Path) -> None:
    """The warm-up leaves the input out too."""
    assert not isinstance(loaded(models.quotient(), tmp_path, input_defaults={"b": 3}).probe(), RunFailure)

"""Inputs without a batch axis and with a value of the operator's: constants, whatever else the file has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests import models
from worker.core.failures import BadConfiguration, RunFailure
from worker.core.records import Value
from worker.inference import Model, inspect, load
from worker.inference.onnx_file.graph import declared_inputs
from worker.settings import ModelSettings

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def settings(path: Path, **defaults: Value) -> ModelSettings:
    return ModelSettings(path=path, device="cpu", input_defaults=defaults)


def loaded(model: bytes, folder: Path, **defaults: Value) -> Model:
    return load(settings(models.save(model, folder), **defaults), max_batch_size=4)


def refusal(model: bytes, folder: Path, **defaults: Value) -> str:
    with pytest.raises(BadConfiguration) as refused:
        loaded(model, folder, **defaults)
    return str(refused.value)


def answer(model: Model, **feeds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    outputs = model.run(feeds)
    assert not isinstance(outputs, RunFailure), outputs
    return outputs[0]


@pytest.mark.parametrize("dims", [(), (1,), (2,), (1, 2)])
def test_an_input_without_a_batch_axis_has_the_value_given(dims: tuple[int, ...], tmp_path: Path) -> None:
    """No request brings it, so plain rows of the other input are enough."""
    model = loaded(models.scaled(dims), tmp_path, scale=2.5)

    assert model.signature.takes == "x FP32[batch, 2]"
    assert model.signature.raw_input is not None
    assert np.array_equal(answer(model, x=ROWS), 2.5 * ROWS)


@pytest.mark.parametrize(
    ("datatype", "value"),
    [("BOOL", True), ("INT8", -7), ("UINT64", 2**64 - 1), ("INT64", -(2**63)), ("FP16", 0.5), ("FP64", 1e300)],
)
def test_a_constant_may_be_of_any_number(datatype: str, value: Value, tmp_path: Path) -> None:
    """Each row is answered with it."""
    model = loaded(models.spread(datatype), tmp_path, same=value)

    assert answer(model, x=ROWS).tolist() == [[value]] * 3


def test_a_constant_may_be_a_text(tmp_path: Path) -> None:
    """One that is longer than a length of one byte can say, too."""
    text = "é" * 100

    assert answer(loaded(models.spread("BYTES"), tmp_path, same=text), x=ROWS).tolist() == [[text]] * 3


def test_a_model_with_weights_in_another_file_may_have_constants(tmp_path: Path) -> None:
    """As PyTorch writes all of its models."""
    path = tmp_path / "model.onnx"
    held = onnx.load_from_string(models.scaled(weight=3.0))
    onnx.save(held, path, save_as_external_data=True, location="model.onnx.data", size_threshold=0)

    model = load(settings(path, scale=2), max_batch_size=4)

    assert (tmp_path / "model.onnx.data").stat().st_size > 0
    assert np.array_equal(answer(model, x=ROWS), 6 * ROWS)


def test_a_file_is_looked_at_with_its_constants(tmp_path: Path) -> None:
    """By those who publish for the model."""
    path = models.save(models.scaled(), tmp_path)

    assert inspect(settings(path, scale=1)).signature.takes == "x FP32[batch, 2]"


def test_a_value_that_a_constant_cannot_have_is_refused(tmp_path: Path) -> None:
    """As for an input that requests may leave out."""
    message = refusal(models.scaled(), tmp_path, scale="much")

    assert "model.onnx: WORKER_MODEL__INPUT_DEFAULTS: scale is FP32 and cannot be 'much': give a number" in message


@pytest.mark.parametrize("dims", [(), (1,), (1, 2)])
def test_without_a_value_the_setting_is_named(dims: tuple[int, ...], tmp_path: Path) -> None:
    """As what to do where the input is the same for all requests."""
    assert """WORKER_MODEL__INPUT_DEFAULTS='{"scale": …}'""" in refusal(models.scaled(dims), tmp_path)


def test_an_input_that_requests_bring_is_no_constant(tmp_path: Path) -> None:
    """One with rows has a default, which a request may overrule; where none has any number of rows, nothing shows."""
    by_rows = loaded(models.scaled(("batch", 1)), tmp_path, scale=2.0)
    assert by_rows.signature.takes == "x FP32[batch, 2], scale FP32[batch, 1] (2.0 if left out)"

    of_one_row = models.save(models.scaled((1, 1), rows=1), tmp_path)
    alone = load(settings(of_one_row, scale=2.0), max_batch_size=1)
    assert alone.signature.takes == "x FP32[batch, 2], scale FP32[batch, 1] (2.0 if left out)"


def test_inputs_are_read_as_onnx_declares_them() -> None:
    """Names, datatypes and dimensions; of what is no tensor that it is none."""
    held = onnx.load_from_string(models.scaled((1, 7)))
    held.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -1

    found = declared_inputs(bytes(held.SerializeToString()))

    assert found["x"] == ("x", onnx.TensorProto.FLOAT, (None, None))
    assert found["scale"] == ("scale", onnx.TensorProto.FLOAT, (1, 7))
    assert declared_inputs(models.optional_input())["x"] == ("x", 0, None)
    assert declared_inputs(models.of_unknown_rank())["x"].dims is None

"""A loaded model: the checks at warm-up, the results of a run, and the failures of the probe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests import models
from tests.unit.inference.loading import arrays, loaded, out_of_memory, refusal
from worker.core.failures import RunFailure
from worker.core.tensors.buckets import Spot
from worker.core.tensors.specs import DTYPES
from worker.inference import warm_up
from worker.inference.model import Model


def test_every_datatype_goes_in_and_comes_out(tmp_path: Path) -> None:
    """A model of all thirteen datatypes returns its input, strings and half floats too."""
    model = loaded(models.every_datatype(), tmp_path)
    texts = np.array([["é", ""], ["0", "\n"], ["日本", "x"]], dtype=object)
    feeds = {
        spec.name: texts if spec.is_text else np.arange(6).reshape(3, 2).astype(spec.dtype)
        for spec in model.signature.inputs
    }

    outputs = arrays(model.run(feeds))

    assert [spec.datatype for spec in model.signature.outputs] == list(DTYPES)
    for (name, given), output in zip(feeds.items(), outputs, strict=True):
        assert output.dtype == given.dtype, name
        assert np.array_equal(output, given), name


def test_a_run_gives_what_numpy_computes(tmp_path: Path) -> None:
    """Several inputs and outputs keep their names and rows."""
    model = loaded(models.two_in_two_out(), tmp_path)
    a, b = np.arange(15, dtype=np.float32).reshape(5, 3), np.arange(10).reshape(5, 2)

    total, doubled = arrays(model.run({"b": b, "a": a}))

    assert np.array_equal(total[:, 0], a.sum(1) + b.sum(1))
    assert np.array_equal(doubled, 2 * b)


# ---- Remarks --------------------------------------------------------------------------------------------------------


def test_an_output_that_is_declared_wrongly_is_served_as_it_is(tmp_path: Path) -> None:
    """Where inputs differ in size, such a dimension may differ, too."""
    fixed, dynamic = loaded(models.misdeclared(), tmp_path), loaded(models.misdeclared(None), tmp_path)

    assert [str(spec) for spec in fixed.signature.outputs] == ["y FP32[batch, 2]", "same FP32[batch, 4]"]
    assert [str(spec) for spec in dynamic.signature.outputs] == ["y FP32[batch, ?]", "same FP32[batch, ?]"]


def test_an_output_of_unknown_rank_gets_the_rank_it_has(tmp_path: Path) -> None:
    """Many files do not say how many dimensions an output has."""
    held = onnx.load_from_string(models.mlp())
    held.graph.output[0].type.tensor_type.ClearField("shape")

    model = loaded(held.SerializeToString(), tmp_path)

    assert len(model.signature.outputs[0].dims) == 1


@pytest.mark.parametrize(
    ("model", "is_told"),
    [
        (models.scattered_back(), True),  # these are rows, and only the axis' name would say so
        (models.scattered_back("batch"), False),
        (models.sorted_rows(), False),
    ],
)
def test_an_output_that_may_be_of_found_items_is_served_and_told_of(
    model: bytes, *, is_told: bool, tmp_path: Path
) -> None:
    """An operator's name alone refuses no model."""
    assert ("NonZero inside" in str(loaded(model, tmp_path).remark)) is is_told


# ---- The warm-up ----------------------------------------------------------------------------------------------------


def test_the_warm_up_runs_one_two_and_the_largest_number_of_rows(tmp_path: Path) -> None:
    """The operator may name other row counts."""
    assert loaded(models.mlp(), tmp_path, max_batch_size=32).warmed_up_at == (1, 2, 32)
    assert loaded(models.mlp(), tmp_path, max_batch_size=1).warmed_up_at == (1, 2)
    assert loaded(models.mlp(), tmp_path, warm_up_rows="16,4").warmed_up_at == (4, 16)


@pytest.mark.parametrize("model", [models.sequence_mean(), models.convolution(), models.convolution(kernel=100)])
def test_a_model_with_other_dynamic_dimensions_is_warmed_up_at_a_size_it_can_run(model: bytes, tmp_path: Path) -> None:
    """A kernel of 40 fails on images of 16, one of 100 on images of 64: larger sizes are tried."""
    assert loaded(model, tmp_path).signature.inputs[0].dims[-1] is None


def test_rows_with_finite_answers_are_preferred(tmp_path: Path) -> None:
    """A mask of zeros divides by zero: without finite numbers, the device check would compare nothing."""
    assert loaded(models.shares(), tmp_path).blank(1)["x"].tolist() == [[1] * 4]


def test_a_model_without_finite_answers_is_served_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the first rows that ran."""
    monkeypatch.setattr(warm_up, "is_finite", lambda _: False)

    assert loaded(models.mlp(), tmp_path).blank(1)["x"].tolist() == [[0] * 4]


def test_rows_are_made_as_long_as_is_asked_for(tmp_path: Path) -> None:
    """This applies to the named axes; the others keep the warm-up's length."""
    image = loaded(models.convolution(3), tmp_path).blank(2, {Spot(0, 1): 5})["image"]

    assert image.shape == (2, 1, 5, 16)


@pytest.mark.parametrize("model", [models.quotient(), models.parse_number(), models.lookup(rows=1)])
def test_a_model_that_fails_on_some_values_is_warmed_up_on_others(model: bytes, tmp_path: Path) -> None:
    """One divides by its input, one parses text, one has a table of a single row."""
    assert not isinstance(loaded(model, tmp_path).probe(), RunFailure)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (models.convolution(kernel=300), "dynamic dimensions of 16, 64, 224, 1: name a file of rows that it takes"),
        (models.categories(), "Unknown Category"),
        (models.reshaped_to_one_row(), "runs on fewer rows but fails on 2"),
        (models.with_loss(), "output loss: 1 row went in and shape [] came out"),
        (models.detector("found"), "output y: 1 row went in and shape [0, 5] came out"),
    ],
)
def test_a_model_that_fails_or_loses_rows_is_refused(model: bytes, words: str, tmp_path: Path) -> None:
    """The refusal names the failure, and the way out."""
    assert words in refusal(model, tmp_path)


def test_a_model_that_knows_other_values_is_warmed_up_with_a_default(tmp_path: Path) -> None:
    """The warm-up leaves an input out where requests may."""
    (one_hot, _) = arrays(loaded(models.categories("also"), tmp_path, input_defaults={"city": "Rome"}).probe())

    assert one_hot.tolist() == [[[1.0, 0.0]]]


def test_a_model_without_room_for_its_rows_is_told_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other values would not help. The cure depends on whether fewer rows can run."""
    one = loaded(models.mlp(), tmp_path)
    ran = Model._outputs
    monkeypatch.setattr(Model, "_outputs", out_of_memory)
    dynamic, fixed = refusal(models.mlp(), tmp_path), refusal(models.fixed_batch(4), tmp_path, fixed_batch="pad")
    few = lambda model, feeds: ran(model, feeds) if len(feeds["x"]) < 8 else out_of_memory()  # noqa: E731
    monkeypatch.setattr(Model, "_outputs", few)

    assert one.warmed_up_at[-1] == 8
    assert "not enough memory for 1 row: give it more memory" in dynamic
    assert "not enough memory for 4 rows: export the model for fewer rows" in fixed
    assert "not enough memory for 8 rows: lower WORKER_BATCHING__MAX_BATCH_SIZE" in refusal(models.mlp(), tmp_path)


# ---- The probe ------------------------------------------------------------------------------------------------------


def test_the_probe_fails_when_finite_outputs_turned_into_nan(tmp_path: Path) -> None:
    """A device that computes nonsense without raising is broken too."""
    model = loaded(models.mlp(), tmp_path)
    model._session = loaded(models.square_root(), tmp_path)._session
    negative = np.full((1, 4), -1, np.float32)
    model.blank = lambda *_: {"x": negative}  # type: ignore[method-assign]

    failure = model.probe()

    assert isinstance(failure, RunFailure)
    assert "NaN or infinity, where it was finite at start" in failure.message


def test_the_probe_fails_when_rows_get_lost(tmp_path: Path) -> None:
    """Then no answer can be given to its request any more."""
    model = loaded(models.mlp(), tmp_path)
    whole = model.run
    model.run = lambda feeds: [output[:-1] for output in arrays(whole(feeds))]  # type: ignore[method-assign]

    failure = model.probe()

    assert isinstance(failure, RunFailure)
    assert "1 row went in, shape (0, 3) came out" in failure.message

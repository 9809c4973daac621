"""Models that run at one number of rows, because they must or run better so. No request gets a padded row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import onnxruntime as ort
import pytest

from tests import models
from tests.unit.inference.loading import arrays
from worker.core.failures import RowsLost, RunFailure
from worker.inference.declared_signature import declared_by
from worker.inference.facts import Padding
from worker.inference.fixed_batch import PLANNED_ANEW, padding_of
from worker.inference.model import Model
from worker.inference.model_loading import load
from worker.inference.onnxruntime_errors import run_failure
from worker.inference.session import CPU
from worker.settings import ModelSettings


def loaded(model: bytes, folder: Path, max_batch_size: int = 32, **settings: Any) -> Model:
    path = models.save(model, folder)
    return load(ModelSettings(path=path, device="cpu", fixed_batch="pad", **settings), max_batch_size=max_batch_size)


def numbers(rows: int, width: int = 4) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, width), dtype=np.float32)


@pytest.mark.parametrize("rows", [1, 3, 7, 8])
def test_any_number_of_rows_up_to_that_gets_its_own_answers(rows: int, tmp_path: Path) -> None:
    """It gets as many answers as rows, and they equal those of an unpadded model."""
    x = numbers(rows)
    free = load(ModelSettings(path=models.save(models.mlp(), tmp_path, "free"), device="cpu"), max_batch_size=8)

    fixed = loaded(models.for_rows(8, models.mlp()), tmp_path).run({"x": x})

    np.testing.assert_allclose(arrays(fixed)[0], arrays(free.run({"x": x}))[0], rtol=1e-5, atol=1e-6)


def test_it_looks_like_any_other_model(tmp_path: Path) -> None:
    """It takes no larger batch, and is warmed up at its only size."""
    model = loaded(models.for_rows(8, models.mlp()), tmp_path)

    assert model.signature.takes == "x FP32[batch, 4]"
    assert model.padding is not None
    assert (model.padding.rows, model.warmed_up_at) == (8, (8,))
    assert (model.most_rows(32), model.most_rows(5)) == (8, 5)
    assert arrays(model.probe())[0].shape == (8, 3)
    assert len(arrays(model.run(model.blank(1)))[0]) == 1


def test_every_input_and_output_is_padded_and_cut(tmp_path: Path) -> None:
    """This includes strings, and one scalar per row."""
    texts = loaded(models.for_rows(4, models.every_datatype()), tmp_path)
    scalars = loaded(models.for_rows(4, models.scalars_per_row()), tmp_path)
    feeds = {name: array[:3] for name, array in texts.blank(4).items()}
    feeds["xBYTES"] = np.array([["a", "b"], ["c", "d"], ["e", "f"]], object)

    out = dict(zip(feeds, arrays(texts.run(feeds)), strict=True))
    totals, best, label = arrays(scalars.run({"x": np.eye(4, dtype=np.float32)[1:3]}))

    for name, given in feeds.items():
        np.testing.assert_array_equal(out[name], given)
    assert (totals.tolist(), best.tolist(), label.tolist()) == ([1, 1], [1, 2], ["c1", "c2"])


def test_only_rows_of_the_request_can_fail_it(tmp_path: Path) -> None:
    """The padding repeats a row that the model runs anyway."""
    model = loaded(models.for_rows(4, models.quotient()), tmp_path)
    good, bad = np.array([[2], [4]], np.int64), np.array([[1], [0]], np.int64)

    assert arrays(model.run({"a": good, "b": good}))[0].tolist() == [[1], [1]]
    assert isinstance(model.run({"a": good, "b": bad}), RunFailure)


def test_an_output_of_another_length_is_a_failure_that_names_it() -> None:
    """If two rows become three, none can be given to a request."""
    with pytest.raises(RowsLost, match=r"output y: 4 rows went in, shape \(3,\) came out") as lost:
        Padding(4, "").cut([np.zeros(4), np.zeros(3)], ["x", "y"], 3)

    assert run_failure(lost.value).loses_rows


# ---- Models that could run at others --------------------------------------------------------------------------------

SIDE = 4
ROW_BYTES = SIDE * SIDE * 4
CONVOLUTION = models.convolution(kernel=2, side=SIDE)
ON_CUDA = ["CUDAExecutionProvider", CPU]
Full = Literal["auto", "never"]


def padding(model: bytes, full: Full = "auto", providers: Sequence[str] = ON_CUDA, size: int | None = None) -> Any:
    """The padding of a batch of eight rows, or of so many bytes."""
    there: Any = SimpleNamespace(get_providers=lambda: list(providers))
    declared = declared_by(ort.InferenceSession(model, providers=[CPU]), settings_of(full), 100)
    operators = frozenset({"Conv"} if b"Conv" in model else ())
    return padding_of(there, operators, declared, settings_of(full), 8, size)


def settings_of(full: Full) -> ModelSettings:
    return ModelSettings(path=Path("model.onnx"), full_batches=full)


def test_a_convolution_on_cuda_always_has_a_full_batch() -> None:
    """Another row count than the last run's makes CUDA plan it anew."""
    found = padding(CONVOLUTION)

    assert found.rows == 8
    assert found.why == PLANNED_ANEW
    assert not found.is_exported


@pytest.mark.parametrize(("size", "rows"), [(8 * ROW_BYTES, 8), (5 * ROW_BYTES + 1, 5), (2 * ROW_BYTES, 2)])
def test_a_full_batch_is_one_that_the_bytes_allow(size: int, rows: int) -> None:
    """A batch would never have more rows."""
    assert padding(CONVOLUTION, size=size).rows == rows


@pytest.mark.parametrize(
    ("model", "full", "providers", "size"),
    [
        pytest.param(CONVOLUTION, "never", ON_CUDA, None, id="not wanted"),
        pytest.param(CONVOLUTION, "auto", [CPU], None, id="on the CPU"),
        pytest.param(CONVOLUTION, "auto", ["TensorrtExecutionProvider", *ON_CUDA], None, id="under TensorRT"),
        pytest.param(models.mlp(), "auto", ON_CUDA, None, id="without a convolution"),
        pytest.param(models.convolution(kernel=2), "auto", ON_CUDA, None, id="rows of many sizes"),
        pytest.param(CONVOLUTION, "auto", ON_CUDA, ROW_BYTES, id="one row is a full batch"),
    ],
)
def test_elsewhere_a_batch_has_the_rows_that_came(
    model: bytes, full: Full, providers: Sequence[str], size: int | None
) -> None:
    """Padding costs time, and pays off nowhere else."""
    assert padding(model, full, providers, size) is None

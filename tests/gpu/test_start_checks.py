"""A start on a GPU refuses networks that mix their rows, and no good network, whatever kernels it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import models
from tests.gpu.nets import NETS, in_half, on_gpu
from tests.random_networks import DEPENDENCES, network
from worker.core.failures import BadConfiguration
from worker.inference.model import Model
from worker.inference.row_independence import independence

ROWS = 8
SEEDS = 30


def told(model: Model) -> str | None:
    """The warning or the refusal after all made-up rows, without a time limit."""
    try:
        return independence(model, ROWS, now=lambda: 0.0).why
    except BadConfiguration as refusal:
        return str(refusal)


@pytest.mark.parametrize("form", ["TF32", "FP32", "FP16"])
@pytest.mark.parametrize("name", NETS)
def test_rows_of_a_good_network_are_found_to_be_their_own(name: str, form: str, tmp_path: Path) -> None:
    """A ResNet, attention and a GRU pass, with eleven bits of a number, and in other numbers of rows."""
    model = NETS[name].build()

    assert told(on_gpu(tmp_path, in_half(model) if form == "FP16" else model, has_tf32=form == "TF32")) is None


def test_no_random_network_of_independent_rows_is_told_of(tmp_path: Path) -> None:
    """Networks of numbers, ids or texts, with each kind of output layer, pass."""
    assert [told(on_gpu(tmp_path, network(seed, None), has_tf32=True)) for seed in range(SEEDS)] == [None] * SEEDS


@pytest.mark.parametrize("dependence", DEPENDENCES)
def test_dependent_rows_show(dependence: str, tmp_path: Path) -> None:
    """They show in networks of numbers: ids and texts are not made up on a device."""
    loaded = [on_gpu(tmp_path, network(seed, dependence), has_tf32=True) for seed in range(12)]
    shown = [told(model) is not None for model in loaded if model.signature.inputs[0].is_float]

    assert len(shown) >= 3
    assert sum(shown) >= len(shown) - 1


@pytest.mark.parametrize("model", [models.softmax_of_columns(), models.similarities(), models.running_sums()])
def test_a_model_that_compares_its_rows_is_refused(model: bytes, tmp_path: Path) -> None:
    assert "change one another's answers" in str(told(on_gpu(tmp_path, model)))

"""Padded axes are tried before requests come: each bucket runs, and outputs can be cut back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import models
from worker.core.failures import BadConfiguration
from worker.core.tensors.buckets import Spot, WantedAxis
from worker.inference import model as model_module
from worker.inference import model_loading
from worker.inference.model import Model
from worker.inference.model_loading import load
from worker.settings import ModelSettings

SEQUENCE = WantedAxis("ids", 1, (2, 4, 8))


def bucketed(model: bytes, folder: Path, *axes: WantedAxis, warm_up_rows: Any = None, **limits: Any) -> Model:
    chosen = {} if warm_up_rows is None else {"warm_up_rows": warm_up_rows}
    settings = ModelSettings(path=models.save(model, folder), device="cpu", **chosen)
    return load(settings, max_batch_size=8, wanted_axes=axes, **limits)


def test_the_warm_up_sees_which_outputs_have_a_padded_axis(tmp_path: Path) -> None:
    """The file's names for dimensions do not matter. A bucket of one element is never padded."""
    (axis,) = bucketed(models.bag_of_words(), tmp_path, SEQUENCE).signature.axes
    (of_one,) = bucketed(models.bag_of_words(), tmp_path, SEQUENCE._replace(boundaries=(1,))).signature.axes

    assert set(axis.inputs) == {Spot(0, 0), Spot(1, 0)}
    assert list(axis.outputs) == [Spot(0, 0)]
    assert not of_one.outputs


def test_every_bucket_is_run_before_requests_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU one row runs in each; on an accelerator also all row counts that a batch may have."""
    ran: list[tuple[int, ...]] = []
    outputs_of = Model._outputs

    def noted(model: Model, feeds: Any) -> Any:
        ran.append(feeds["ids"].shape)
        return outputs_of(model, feeds)

    monkeypatch.setattr(Model, "_outputs", noted)
    bucketed(models.bag_of_words(), tmp_path, SEQUENCE)
    assert ran[-3:] == [(1, 2), (1, 4), (1, 8)]

    monkeypatch.setattr(model_module, "is_accelerated", lambda _: True)
    monkeypatch.setattr(model_loading, "is_accelerated", lambda _: True)
    bucketed(models.bag_of_words(), tmp_path, SEQUENCE, max_batch_tokens=20)
    assert ran[-8:] == [(2, 2), (4, 2), (8, 2), (1, 4), (2, 4), (4, 4), (1, 8), (2, 8)]

    bucketed(models.bag_of_words(), tmp_path, SEQUENCE, max_batch_bytes=128)
    assert ran[-6:] == [(1, 2), (2, 2), (4, 2), (1, 4), (2, 4), (1, 8)]


@pytest.mark.parametrize(
    ("model", "axis", "words"),
    [
        (models.up_to_two(), WantedAxis("x", 1, (1, 3)), "fails in the bucket 3 of WORKER_BATCHING__BUCKETS"),
        (models.every_second(), WantedAxis("x", 1, (4, 8)), "output y has shape"),
        (models.rounded_up(16), WantedAxis("x", 1, (16, 40, 64)), r"the bucket 40 of .* shape \(1, 48\): leave"),
        (models.groups(of=4, count=2), WantedAxis("x", 1, (8,)), "at none of 7, 16, 4, so"),
        (models.bag_of_words(), SEQUENCE._replace(boundaries=(2, 10**9)), "takes 16000000000 bytes"),
    ],
)
def test_buckets_that_the_model_does_not_take_are_refused_at_start(
    model: bytes, axis: WantedAxis, words: str, tmp_path: Path
) -> None:
    """They are not first found request by request."""
    with pytest.raises(BadConfiguration, match=words):
        bucketed(model, tmp_path, axis)


def test_an_output_of_other_dimensions_in_another_bucket_is_refused_at_start(tmp_path: Path) -> None:
    """An example is an output that is squeezed where the bucket is 1."""
    with pytest.raises(
        BadConfiguration, match=r"y has shape \[4\] where input x axis 1 is 1 and \[4, 8\] where it is 8"
    ):
        bucketed(models.squeezed(), tmp_path, WantedAxis("x", 1, (1, 8)), warm_up_rows=(4, 8))


@pytest.mark.parametrize("boundaries", [(2,), (4, 8), (16, 32)])
def test_one_axis_under_two_names_must_be_named_for_both_inputs(boundaries: tuple[int, ...], tmp_path: Path) -> None:
    """Some exporters make up a name for each input: with padding in only one, no request would run."""
    ids = WantedAxis("ids", 1, boundaries)
    model = models.bag_of_words(symbols=("ids_1", "mask_1"))

    with pytest.raises(BadConfiguration, match=r"axis 1 of mask has to be as long: name it in shared"):
        bucketed(model, tmp_path, ids)

    (axis,) = bucketed(model, tmp_path, ids._replace(shared_by={"mask": 0})).signature.axes
    assert len(axis.inputs) == 2


def test_an_axis_that_may_have_any_length_of_its_own_is_left_alone(tmp_path: Path) -> None:
    """An axis in an equal place is not always a shared axis."""
    (axis,) = bucketed(models.text_with_lone_axis(), tmp_path, WantedAxis("ids", 1, (4, 8))).signature.axes

    assert list(axis.inputs) == [Spot(0, 0)]


@pytest.mark.parametrize("only", [8, 2])
def test_a_single_bucket_may_be_of_a_length_whose_neighbours_fail(only: int, tmp_path: Path) -> None:
    """Its double is tried too, for a model that takes multiples."""
    (axis,) = bucketed(models.groups(of=2), tmp_path, WantedAxis("x", 1, (only,))).signature.axes

    assert not axis.outputs

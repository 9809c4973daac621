"""Models whose rows change one another's answers are told of, and others are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import models
from worker.inference import entanglement, load
from worker.settings import ModelSettings

MAX_BATCH_SIZE = 8


def told(model: bytes, folder: Path, max_batch_size: int = MAX_BATCH_SIZE, **settings: Any) -> str | None:
    settings = {"device": "cpu", "path": models.save(model, folder), **settings}
    return entanglement(load(ModelSettings(**settings), max_batch_size=max_batch_size), max_batch_size)


@pytest.mark.parametrize(
    "model",
    [
        models.softmax_of_columns(),
        models.running_sums(),
        models.quantised_together(),
        models.shifted_ids(),
        models.first_columns(),
    ],
    ids=["softmax over rows", "time first", "quantised dynamically", "of whole numbers", "as wide as one asks for"],
)
def test_rows_that_change_one_another_are_told_of(model: bytes, tmp_path: Path) -> None:
    """With the output, by how much, the kinds of models that do so, and what to do."""
    why = told(model, tmp_path)

    assert why is not None
    assert "change one another's answers: y of a made-up row differs" in why
    assert "batch_first=True" in why
    assert "WORKER_BATCHING__MAX_BATCH_SIZE=1" in why


@pytest.mark.parametrize(
    "model",
    [
        models.mlp(),
        models.mlp(64, (256, 256)),
        models.two_in_two_out(),
        models.every_datatype(),
        models.identity("FP16"),
        models.square_root(),
        models.sequence_mean(),
        models.text_scores(),
        models.encoder(),
        models.convolution(),
        models.lookup(rows=1),
        models.parse_number(),
        models.bag_of_grams(),
        models.bag_of_words(),
        models.scalars_per_row(),
        models.row_sums(),
        models.groups(),
        models.every_second(),
        models.quotient(),
        models.hungry(floats=8),
    ],
)
def test_rows_that_keep_to_themselves_are_not(model: bytes, tmp_path: Path) -> None:
    """Also where made-up numbers give NaN, are in no table, or cannot be read."""
    assert told(model, tmp_path) is None


@pytest.mark.parametrize(("rows", "is_told"), [(4, True), (1, False)])
def test_of_a_padded_batch_the_rows_are_tried_too(rows: int, *, is_told: bool, tmp_path: Path) -> None:
    """But for one of a single row, which has no neighbours."""
    model = models.for_rows(rows, models.softmax_of_columns())

    assert bool(told(model, tmp_path, fixed_batch="pad")) is is_told


def test_who_runs_rows_alone_is_told_nothing(tmp_path: Path) -> None:
    """It is the cure."""
    assert told(models.softmax_of_columns(), tmp_path, max_batch_size=1) is None


def test_a_model_that_is_never_the_same_is_told_of_as_that(tmp_path: Path) -> None:
    """Neighbours have no part in it."""
    why = told(models.noisy(), tmp_path)

    assert why == "the model answers the same rows differently each time (y): export it in evaluation mode"


def test_a_model_that_answers_infinity_is_compared_in_silence(tmp_path: Path) -> None:
    """numpy's own warning would stand among the log's lines of JSON."""
    assert told(models.exponentials(), tmp_path) is None


def test_an_input_that_requests_leave_out_keeps_what_fills_it_in(tmp_path: Path) -> None:
    """A made-up number there may be one that no request has."""
    assert told(models.two_in_two_out(), tmp_path, input_defaults={"a": 1.0}) is None


def test_what_a_quantised_row_loses_is_said(tmp_path: Path) -> None:
    """As a part of the row's largest number, which is all there is to judge it by."""
    why = told(models.quantised_together(), tmp_path)

    assert why is not None
    share = float(why.split("differs by ")[1].split("%")[0])
    # The loud row spans 200, and so a step is 0.8, of which rounding takes up to a half.
    assert 1 < share < 100 * 0.8
    assert np.isfinite(share)

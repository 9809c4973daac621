"""Models whose rows change one another's answers are reported, and others are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import models
from tests.random_networks import DEPENDENCES, network
from tests.unit.inference.loading import loaded
from worker.core.failures import BadConfiguration
from worker.inference.facts import Independence
from worker.inference.model import Model
from worker.inference.row_independence import independence

MAX_BATCH_SIZE = 8


def found(model: bytes, folder: Path, max_batch_size: int = MAX_BATCH_SIZE, **settings: Any) -> Independence:
    """The check without a time limit: equal row counts on every machine."""
    return independence(loaded(model, folder, max_batch_size, **settings), max_batch_size, now=lambda: 0.0)


def told(model: bytes, folder: Path, max_batch_size: int = MAX_BATCH_SIZE, **settings: Any) -> str | None:
    """The warning, or the refusal."""
    try:
        return found(model, folder, max_batch_size, **settings).why
    except BadConfiguration as refusal:
        return str(refusal)


def refusal(model: bytes, folder: Path, **settings: Any) -> str:
    with pytest.raises(BadConfiguration) as refused:
        found(model, folder, **settings)
    return str(refused.value)


def noted(model: Model) -> tuple[Model, list[Any]]:
    """The model, and a list that collects its feeds from now on."""
    asked: list[Any] = []
    run = model.run

    def note(feeds: Any) -> Any:
        asked.append(feeds)
        return run(feeds)

    model.run = note  # type: ignore[method-assign]  # notes the feeds
    return model, asked


@pytest.mark.parametrize(
    "model",
    [
        models.softmax_of_columns(),
        models.running_sums(),
        models.quantised_together(),
        models.shifted_ids(),
        models.first_columns(),
        *(models.sorted_rows(width, largest=largest) for width in (1, 2, 3, 4) for largest in (0, 1)),
    ],
    ids=[
        "softmax over rows",
        "time first",
        "quantised dynamically",
        "of whole numbers",
        "as wide as one asks for",
        *(f"sorted {order} by {width}" for width in (1, 2, 3, 4) for order in ("up", "down")),
    ],
)
def test_rows_that_change_one_another_are_told_of(model: bytes, tmp_path: Path) -> None:
    """The message names the output, the difference, and the way out."""
    why = told(model, tmp_path)

    assert why is not None
    assert "change one another's answers: y of a made-up row differs" in why
    assert ("one scale for all rows" in why) is (b"DynamicQuantizeLinear" in model)
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
        models.exponentials(),
    ],
)
def test_rows_that_keep_to_themselves_are_not(model: bytes, tmp_path: Path) -> None:
    """This holds even where made-up numbers give NaN, are in no table, or cannot be read."""
    assert told(model, tmp_path) is None


@pytest.mark.parametrize("warm_up_rows", [(1, 2, 8), (3, 5, 8)])
def test_answers_that_depend_on_the_number_of_rows_are_told_of(warm_up_rows: tuple[int, ...], tmp_path: Path) -> None:
    """Copies of a row then agree, in a batch of each size."""
    why = refusal(models.divided_by_rows(), tmp_path, warm_up_rows=warm_up_rows)

    assert "y of a made-up row differs in a batch of" in why


@pytest.mark.parametrize(("rows", "is_told"), [(4, True), (1, False)])
def test_of_a_padded_batch_the_rows_are_tried_too(rows: int, *, is_told: bool, tmp_path: Path) -> None:
    """A batch of a single row has no neighbours."""
    model = models.for_rows(rows, models.softmax_of_columns())

    assert bool(told(model, tmp_path, fixed_batch="pad")) is is_told


def test_who_runs_rows_alone_is_told_nothing(tmp_path: Path) -> None:
    """Running rows alone is the cure."""
    assert told(models.softmax_of_columns(), tmp_path, max_batch_size=1) is None


def test_a_model_that_is_never_the_same_is_told_of_as_that(tmp_path: Path) -> None:
    """Other rows have no part in it."""
    why = told(models.noisy(), tmp_path)

    assert why == "the model answers the same rows differently each time (y): it has RandomNormalLike inside"


def test_a_model_that_was_exported_in_training_mode_is_refused(tmp_path: Path) -> None:
    """Its answers change each time, though it draws no random numbers."""
    why = refusal(models.normalised_in_training(), tmp_path)

    assert "differently each time (y)" in why
    assert "training mode" in why


@pytest.mark.parametrize("axis", [None, "batch"])
def test_a_model_whose_rows_are_items_is_refused(axis: str | None, tmp_path: Path) -> None:
    """Texts of zeros and ones have one token each; some made-up texts have two tokens, and some none."""
    assert "output tokens: 2 rows went in and shape [" in refusal(models.tokens(axis), tmp_path)


@pytest.mark.parametrize("gives", ["each", "first"])
def test_a_detector_that_found_nothing_is_not_trusted(gives: str, tmp_path: Path) -> None:
    """A detector that fills only the first image of a batch leaves the others empty."""
    assert "NonMaxSuppression inside and found nothing" in refusal(models.detector(gives), tmp_path)


def test_images_with_objects_show_what_a_detector_does(tmp_path: Path) -> None:
    """A detector that answers each image is served."""
    path = tmp_path / "example.npz"
    np.savez(path, x=np.array([[0, 0, 1, 1, 2e6], [0, 0, 1, 1, 3e6]], np.float32))

    assert told(models.detector(), tmp_path, warm_up_example=path) is None
    assert "behind its own copies" in refusal(models.detector("first"), tmp_path, warm_up_example=path)


def test_labels_that_are_all_the_same_hide_no_object(tmp_path: Path) -> None:
    """A detector of one class always gives label 0; its different boxes show that it found something."""
    path = tmp_path / "example.npz"
    np.savez(path, x=np.array([[0, 0, 1, 1, 2e6], [0, 0, 1, 1, 3e6]], np.float32))
    model = models.detector_of_one_class()

    assert str(found(model, tmp_path, warm_up_example=path).doubt).startswith("label did not differ")
    assert "(y, label did not differ in the" in refusal(model, tmp_path)


@pytest.mark.parametrize("quantised", [False, True])
def test_columns_that_are_the_batch_are_refused(*, quantised: bool, tmp_path: Path) -> None:
    """A request of one row would get numbers of other rows. A scale for all rows is no excuse."""
    why = refusal(models.similarities(quantised=quantised), tmp_path)

    assert "y of a made-up row differs in a batch of 1" in why


@pytest.mark.parametrize("dependence", DEPENDENCES)
def test_dependent_rows_show_in_nearly_every_random_network(dependence: str, tmp_path: Path) -> None:
    """Exceptions answer all rows alike, or nearly all with one label."""
    shown = [told(network(seed, dependence), tmp_path) is not None for seed in range(20)]

    assert sum(shown) >= 19


def test_a_dynamically_quantised_network_is_named_where_nothing_shows(tmp_path: Path) -> None:
    """Its operator gives it away: it has one scale for all rows."""
    found_in = [str(found(network(seed, "quantised"), tmp_path).why) for seed in range(60)]

    assert sum("of a made-up row differs" in why for why in found_in) >= 48
    assert all("(DynamicQuantizeLinear), by one scale" in why and "MAX_BATCH_SIZE=1" in why for why in found_in)


@pytest.mark.parametrize("start", range(0, 100, 20))
def test_no_random_network_of_independent_rows_is_told_of(start: int, tmp_path: Path) -> None:
    """This holds for all kinds of inputs and of last layers."""
    assert [told(network(seed, None), tmp_path) for seed in range(start, start + 20)] == [None] * 20


def test_answers_that_are_all_the_same_are_no_evidence(tmp_path: Path) -> None:
    """The doubt names a cure and is reproducible. A model whose rows get different answers raises none."""
    constant = found(models.lookup(rows=1), tmp_path)

    assert str(constant.doubt).startswith("y did not differ in the ")
    assert "WORKER_MODEL__WARM_UP_EXAMPLE" in str(constant.doubt)
    assert found(models.lookup(rows=1), tmp_path) == constant
    assert found(models.mlp(), tmp_path) == Independence()


@pytest.mark.parametrize("less_the_mean", [False, True])
def test_a_model_of_positive_numbers_alone_is_judged_by_them(*, less_the_mean: bool, tmp_path: Path) -> None:
    """Rows of both signs always make NaN."""
    assert (told(models.sum_of_logarithms(less_the_mean=less_the_mean), tmp_path) is not None) is less_the_mean


@pytest.mark.parametrize(("seconds", "runs"), [(0.0, 24), (1.0, 6)])
def test_a_slow_model_is_asked_six_times(seconds: float, runs: int, tmp_path: Path) -> None:
    """It runs a row, a loud one and its opposite, alone and next to each other, and one in another number."""
    model, asked = noted(loaded(models.mlp(), tmp_path))

    assert independence(model, MAX_BATCH_SIZE, now=lambda: seconds * len(asked)) == Independence()
    assert len(asked) == runs


def test_on_a_device_no_number_is_tried_that_may_be_outside_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device might not recover. So the check finds nothing, and says so."""
    model, asked = noted(loaded(models.two_in_two_out(), tmp_path))
    monkeypatch.setattr(Model, "is_accelerated", property(lambda _: True))

    found_out = independence(model, MAX_BATCH_SIZE, now=lambda: 0.0)

    assert not any(feeds["b"].any() for feeds in asked)
    assert any(feeds["a"].any() for feeds in asked)
    assert str(found_out.doubt).startswith("doubled did not differ")

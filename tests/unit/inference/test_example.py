"""An example that the model accepts: checked like a request, and run in the place of zeros and ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import models
from worker.core.failures import BadConfiguration, RunFailure
from worker.core.tensors.buckets import Spot, WantedAxis
from worker.inference.facts import Independence
from worker.inference.model import Model
from worker.inference.model_loading import example_of, inspect, load
from worker.inference.row_independence import independence
from worker.settings import ModelSettings

CODES, CITIES = np.array([[10115], [20095], [10115]]), np.array([["Rome"], ["Oslo"], ["Oslo"]])
IDS, MASK = np.array([[11, 12, 13, 19]]), np.array([[1, 1, 1, 1]])


def npz(folder: Path, **arrays: Any) -> Path:
    path = folder / "example.npz"
    np.savez(path, **arrays)
    return path


def loaded(model: bytes, folder: Path, example: Path, *axes: WantedAxis, **settings: Any) -> Model:
    settings = {"device": "cpu", "warm_up_example": example, **settings}
    return load(ModelSettings(path=models.save(model, folder), **settings), max_batch_size=8, wanted_axes=axes)


def refusal(model: bytes, folder: Path, example: Path, *axes: WantedAxis, **settings: Any) -> str:
    with pytest.raises(BadConfiguration) as refused:
        loaded(model, folder, example, *axes, **settings)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def area(result: Any) -> list[Any]:
    assert not isinstance(result, RunFailure), result
    return np.asarray(result[0])[:, 0].tolist()  # type: ignore[no-any-return]  # numpy's lists


ROME, OSLO, MIXED = [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]


def test_a_model_that_takes_neither_zeros_nor_ones_is_warmed_up_with_rows_it_takes(tmp_path: Path) -> None:
    """The warm-up repeats the example's rows for all row counts, and the device check uses them too."""
    model = loaded(models.postcodes(), tmp_path, npz(tmp_path, code=CODES, city=CITIES))

    assert model.warmed_up_at == (1, 2, 8)
    assert area(model.probe()) == [ROME]
    assert area(model.run(model.blank(5))) == [ROME, OSLO, MIXED, ROME, OSLO]


def test_an_array_without_a_batch_axis_is_one_row(tmp_path: Path) -> None:
    """The other array in the file has one."""
    model = loaded(models.postcodes(), tmp_path, npz(tmp_path, code=np.array([20095]), city=CITIES[1:2]))

    assert area(model.probe()) == [OSLO]


def test_what_an_example_leaves_out_is_filled_in(tmp_path: Path) -> None:
    """Requests are filled in, too."""
    example = npz(tmp_path, ids=IDS)

    model = loaded(models.above(), tmp_path, example, input_defaults={"mask": 1})

    assert model.blank(2)["mask"].tolist() == [[1] * 4] * 2


def test_buckets_are_tried_with_the_example_padded_or_cut(tmp_path: Path) -> None:
    """The operator chooses the pad, and a start finds a pad that the model does not take."""
    example = npz(tmp_path, ids=IDS, mask=MASK)
    ids = WantedAxis("ids", 1, (2, 5, 8), 10, {"mask": 0})

    model = loaded(models.above(), tmp_path, example, ids)

    assert model.blank(1)["ids"].tolist() == [[11, 12, 13, 19, 10]]
    assert model.blank(1, {Spot(0, 0): 2, Spot(1, 0): 2})["ids"].tolist() == [[11, 12]]
    assert model.blank(1)["mask"].tolist() == [[1, 1, 1, 1, 0]]
    assert "Gather: indices element out of data bounds" in refusal(
        models.above(), tmp_path, example, ids._replace(pad=9)
    )


@pytest.mark.parametrize("is_accelerated", [False, True])
def test_rows_are_run_beside_one_another_in_the_values_given(
    is_accelerated: bool,  # noqa: FBT001 - where it runs
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table begins at id 10, and changed rows stay inside it, on a device too. Zeros would show nothing."""
    asked: list[Any] = []
    example = npz(tmp_path, ids=np.vstack([IDS, IDS[:, ::-1]]), mask=np.vstack([MASK, MASK]))
    model, run = loaded(models.above(), tmp_path, example), Model.run
    monkeypatch.setattr(Model, "is_accelerated", property(lambda _: is_accelerated))

    def noted(feeds: Any) -> Any:
        asked.append(feeds["ids"])
        return run(model, feeds)

    model.run = noted  # type: ignore[method-assign]  # notes the feeds
    found = independence(model, 8, now=lambda: 0.0)

    assert found == Independence()
    assert {tuple(sorted(row)) for rows in asked for row in rows.tolist()} == {(11, 12, 13, 19)}
    assert len({tuple(row) for rows in asked for row in rows.tolist()}) > 1


def test_dependence_shows_in_rows_that_are_given(tmp_path: Path) -> None:
    """Categories cannot be made up."""
    model = models.postcodes_of_all()

    with pytest.raises(BadConfiguration, match="area of a made-up row differs"):
        independence(loaded(model, tmp_path, npz(tmp_path, code=CODES, city=CITIES)), 8, now=lambda: 0.0)


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (lambda folder: folder / "none.npz", "none.npz: cannot be read: No such file or directory"),
        (lambda folder: folder, "cannot be read: Is a directory"),
        (lambda folder: npz(folder, code=CODES), "missing input city; the model takes code INT64[batch, 1], city"),
        (lambda folder: npz(folder, zip=CODES), "the model has no input 'zip'; it takes code INT64[batch, 1]"),
        (lambda folder: npz(folder, code=CODES.astype("f4"), city=CITIES), "code is float32, and the model takes code"),
        (lambda folder: npz(folder, code=CODES, city=CODES), "city is int64, and the model takes city BYTES[batch, 1]"),
        (lambda folder: npz(folder, code=CODES, city=CITIES.astype(object)), "no archive of arrays (Object arrays"),
        (lambda folder: npz(folder, code=CODES, city=CITIES[:, 0]), "city: expected city BYTES[batch, 1], got shape"),
        (lambda folder: npz(folder, code=CODES[:2], city=CITIES), "same number of rows, got code: 2, city: 3"),
        (lambda folder: npz(folder, code=CODES[:0], city=CITIES[:0]), "must be an integer of at least 1, got [0, 1]"),
        (
            lambda folder: npz(folder, code=np.repeat(CODES, 11, 0), city=np.repeat(CITIES, 11, 0)),
            "it has 33 rows, at most 32 are taken: leave those that are unlike",
        ),
        (
            lambda folder: npz(folder, code=CODES + 1, city=CITIES),
            "the model fails on row 0 of WORKER_MODEL__WARM_UP_EXAMPLE, give values that it takes: OneHotEncoder",
        ),
        (
            lambda folder: npz(folder, code=CODES + np.array([[0], [1], [0]]), city=CITIES),
            "the model fails on row 1 of WORKER_MODEL__WARM_UP_EXAMPLE",
        ),
        (lambda folder: written(folder, b"{}"), "it is no archive of arrays"),
        (lambda folder: written(folder, b"PK\x03\x04 and no more"), "save it with numpy.savez(path, name=array, …)"),
    ],
)
def test_an_example_that_is_none_is_refused_with_the_cure(
    example: Callable[[Path], Path], words: str, tmp_path: Path
) -> None:
    """The file is checked before the model runs; only the model can judge some values."""
    message = refusal(models.postcodes(), tmp_path, example(tmp_path))

    assert words in message
    assert "WORKER_MODEL__WARM_UP_EXAMPLE" in message


def written(folder: Path, content: bytes) -> Path:
    path = folder / "example"
    path.write_bytes(content)
    return path


def test_an_example_is_as_finite_as_requests_have_to_be(tmp_path: Path) -> None:
    """The check follows the setting for requests."""
    example = npz(tmp_path, x=np.array([1, np.nan, 3, 4], np.float32))

    assert "x has NaN or infinity in it, and requests may not" in refusal(models.mlp(), tmp_path, example)
    assert loaded(models.mlp(), tmp_path, example, non_finite_input="allow").example_rows == 1


def test_an_example_that_no_bucket_takes_is_refused(tmp_path: Path) -> None:
    """A request would be refused, too."""
    example = npz(tmp_path, ids=IDS, mask=MASK)
    ids = WantedAxis("ids", 1, (2, 3), 10, {"mask": 0})

    assert "input ids axis 1: 4 long, at most 3 is taken" in refusal(models.above(), tmp_path, example, ids)


def test_a_file_is_only_looked_at_without_its_example(tmp_path: Path) -> None:
    """A reader of answers needs no example; a maker of requests asks for it."""
    path = models.save(models.postcodes(), tmp_path)
    settings = ModelSettings(path=path, warm_up_example=tmp_path / "none.npz")

    signature = inspect(settings).signature

    assert signature.takes == "code INT64[batch, 1], city BYTES[batch, 1]"
    with pytest.raises(BadConfiguration, match=r"none.npz: cannot be read"):
        example_of(settings, signature)

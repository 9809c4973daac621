"""A full batch is over before it counts as hung, or the start is refused."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests import models
from worker.core.failures import BadConfiguration
from worker.inference import Model, check_run_time, load
from worker.settings import ModelSettings


def loaded(folder: Path, warm_up_seconds: float, **settings: Any) -> Model:
    path = models.save(models.mlp(), folder)
    model = load(ModelSettings(path=path, device="cpu", **settings), max_batch_size=8)
    model.warm_up_seconds = warm_up_seconds
    return model


def taking(seconds: float) -> Callable[[], float]:
    """A clock by which a run takes so long."""
    return iter([100.0, 100.0 + seconds]).__next__


def test_a_batch_that_would_count_as_hung_is_refused_with_the_cure(tmp_path: Path) -> None:
    """Each full one would end the worker."""
    with pytest.raises(BadConfiguration) as refused:
        check_run_time(loaded(tmp_path, 70.0), 8, 60.0, taking(64.25))

    assert str(refused.value).startswith(
        "a full batch, 8 rows, took 64.2 s at start, and an inference of more than 60 s counts as hung and ends the "
        "worker: lower WORKER_BATCHING__MAX_BATCH_SIZE, raise WORKER_MODEL__RUN_TIMEOUT_S"
    )


@pytest.mark.parametrize(("rows", "settings"), [(1, {}), (8, {"full_batches": "always"})])
def test_where_fewer_rows_are_no_help_they_are_not_advised(rows: int, settings: dict[str, Any], tmp_path: Path) -> None:
    """A single row, and a model that always runs as many."""
    with pytest.raises(BadConfiguration, match=r"ends the worker: raise WORKER_MODEL__RUN_TIMEOUT_S"):
        check_run_time(loaded(tmp_path, 70.0, **settings), rows, 60.0, taking(61.0))


def test_what_takes_long_only_the_first_time_is_served(tmp_path: Path) -> None:
    """TensorRT builds its engines in the first run."""
    check_run_time(loaded(tmp_path, 600.0), 8, 60.0, taking(0.1))


def test_a_quick_model_is_not_run_once_more(tmp_path: Path) -> None:
    """Its whole warm-up took less."""
    check_run_time(loaded(tmp_path, 0.5), 8, 60.0, taking(inf))


def test_the_warm_up_is_timed(tmp_path: Path) -> None:
    """From its first run to its last."""
    path = models.save(models.mlp(), tmp_path)

    assert 0 < load(ModelSettings(path=path, device="cpu"), max_batch_size=8).warm_up_seconds < 60

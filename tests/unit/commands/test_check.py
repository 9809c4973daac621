"""Findings of `check` without a cluster."""

from __future__ import annotations

import gc
import json
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests import models
from tests.unit.test_settings import LEAST
from worker.commands import checking, trying
from worker.commands.checking import _example, _look_at_model, _look_at_room, examined
from worker.commands.report import Report
from worker.core.failures import BadConfiguration
from worker.inference.model import Model
from worker.inference.model_loading import load_as_set
from worker.settings import Settings, load


def judged(model: bytes, folder: Path, **variables: str) -> tuple[Settings, Report, Model | None]:
    """The settings, the report on a model, and the model if it can be loaded."""
    report = Report()
    given = {f"WORKER_{key}": value for key, value in variables.items()}
    settings = load(None, LEAST | {"WORKER_MODEL__PATH": str(models.save(model, folder)), **given})
    return settings, report, _look_at_model(settings, report)


def test_settings_that_do_not_hold_are_all_told_and_nothing_else_is_looked_at() -> None:
    """A login must not cross the network in clear, so `check` asks no broker: each problem names its setting."""
    distant = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": "192.0.2.1:9092", "WORKER_STATE__STORE": "redis://192.0.2.1"}
    states = {"WORKER_STATE__TENSORS": '{"h_in": "h_out"}'}

    report = examined(None, LEAST | distant | states)

    assert report.exit_code == 2
    told = [problem.split(":")[0] for problem in report.problems]
    assert told == ["WORKER_KAFKA__SECURITY_PROTOCOL", "WORKER_STATE__STORE"]


@pytest.mark.parametrize(("last", "problem"), [(2, None), (3, "fails in the bucket 3 of WORKER_BATCHING__BUCKETS")])
def test_buckets_are_tried_as_a_start_would_try_them(last: int, problem: str | None, tmp_path: Path) -> None:
    """A worker does not start with a bucket in which the model fails."""
    buckets = f'{{"x": {{"axis": 1, "boundaries": [1, {last}]}}}}'

    _, report, _ = judged(models.up_to_two(), tmp_path, BATCHING__BUCKETS=buckets)

    if problem is None:
        assert report.model["padded"] == "input x axis 1 to 1, 2"
    else:
        assert report.exit_code == 2
        assert problem in str(report.problems[0])


def test_an_open_axis_has_the_name_that_the_models_file_gives_it(tmp_path: Path) -> None:
    """A question mark would say less than the file does."""
    _, report, _ = judged(models.sequence_mean(), tmp_path)

    assert report.model["takes"] == "tokens FP32[batch, length]"


@pytest.mark.parametrize(
    ("variables", "rows", "closed_by"),
    [
        ({"MAX_BATCH_SIZE": "32768"}, "2,048 rows", "WORKER_BATCHING__MAX_BATCH_BYTES"),
        ({"MAX_BATCH_BYTES": "1024"}, "1 row", "WORKER_BATCHING__MAX_BATCH_BYTES"),
        ({"MAX_BATCH_TOKENS": "8192"}, "4 rows", "WORKER_BATCHING__MAX_BATCH_TOKENS"),
    ],
)
def test_the_setting_that_closes_full_batches_is_named(
    variables: dict[str, str], rows: str, closed_by: str, tmp_path: Path
) -> None:
    """2,048 rows of 8 KiB fill 16 MiB: no batch holds more, whatever MAX_BATCH_SIZE says."""
    settings = {f"BATCHING__{key}": value for key, value in variables.items()}

    _, report, _ = judged(models.identity("FP32", (2048,)), tmp_path, **settings)

    assert report.model["full batches"] == f"close at {rows}, by {closed_by}"


@pytest.mark.parametrize("limit", [None, 188, 189])
def test_a_state_that_its_changelog_does_not_take_is_a_problem(limit: int | None, tmp_path: Path) -> None:
    """A worker would not start. The check adds a key of one byte, and needs the limit from the cluster."""
    settings, report, model = judged(models.gru(), tmp_path, STATE__TENSORS='{"h_in": "h_out"}')
    report.max_bytes = {} if limit is None else {"answers": 10_000, "group-state": limit}
    assert model is not None

    _look_at_room(model.signature, settings, report, None)

    assert report.exit_code == (2 if limit == 188 else 0)
    assert ["the state of a key has 88 bytes" in problem for problem in report.problems] == [True] * (limit == 188)


@pytest.mark.parametrize(("dims", "warned"), [(262_144, 0), (262_145, 1)])
def test_a_row_that_no_request_can_bring_is_warned_of(dims: int, warned: int, tmp_path: Path) -> None:
    """`MAX_REQUEST_BYTES` decides, and the response topic's limit if the cluster tells it."""
    settings, report, model = judged(models.identity("FP32", (dims,)), tmp_path)
    assert model is not None

    _look_at_room(model.signature, settings, report, None)

    assert len(report.warnings) == warned


def test_rows_that_would_get_others_answers_are_a_problem(tmp_path: Path) -> None:
    """A worker refuses to start with such a model."""
    _, report, _ = judged(models.softmax_of_columns(), tmp_path)

    assert report.exit_code == 2
    assert "change one another's answers" in str(report.problems[0])


def test_a_model_that_a_host_loads_again_is_let_go_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has it once: that of a GPU may have no room for two."""
    (tmp_path / "functions.py").write_text("def answer(outputs, record):\n    return {}\n")
    loaded: list[weakref.ref[Model]] = []

    def load(*given: Any) -> Model:
        model = load_as_set(*given)
        loaded.append(weakref.ref(model))
        return model

    def begin(*_: object) -> None:
        gc.collect()
        raise BadConfiguration("at work" if loaded[0]() is None else "there are two")

    monkeypatch.setattr(checking, "load_as_set", load)
    monkeypatch.setattr(trying, "hosted", begin)
    settings, report, _ = judged(models.mlp(), tmp_path, RECORDS__FUNCTIONS=str(tmp_path / "functions.py"))
    loaded.clear()

    signature, scorer = checking._look_at_served(settings, report, ExitStack(), with_example=False)

    assert signature is not None
    assert scorer is None
    assert report.problems == ["at work"]


@pytest.mark.parametrize(
    ("model", "states", "outputs"),
    [(models.two_in_two_out(), {}, ["total", "doubled"]), (models.gru(), {"h_in": "h_out"}, ["y"])],
    ids=["plain", "with state"],
)
def test_an_example_is_a_request_for_the_model_and_its_answer(
    model: bytes, states: dict[str, str], outputs: list[str], tmp_path: Path
) -> None:
    """The key's state is in neither."""
    given = {"STATE__TENSORS": json.dumps(states)} if states else {}
    settings, _, loaded = judged(model, tmp_path, **given)
    assert loaded is not None

    example = _example(loaded, settings)

    assert [spec["shape"][0] for spec in json.loads(example["request"][1])["inputs"]] == [1] * (2 - len(states))
    headers, answer = example["answer"]
    assert dict(headers)["status"] == b"ok"
    assert [spec["name"] for spec in json.loads(answer)["outputs"]] == outputs


def test_batches_of_a_fixed_size_are_told(tmp_path: Path) -> None:
    """MAX_BATCH_SIZE gives another number."""
    _, report, _ = judged(models.fixed_batch(8), tmp_path, MODEL__FIXED_BATCH="pad")

    assert "of exactly 8 rows, short ones are padded" in report.model["batches"]

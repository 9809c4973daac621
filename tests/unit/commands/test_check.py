"""What `check` finds without a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests import models
from tests.unit.test_settings import LEAST
from worker.commands.check.command import _look_at_model, _look_at_room, _look_at_telemetry, examined
from worker.commands.check.report import ClusterFacts, Report
from worker.settings import load
from worker.settings.for_commands import load_scoring


def looked_at(**telemetry: str) -> Report:
    report = Report("inference-worker check --json")
    variables = {f"WORKER_TELEMETRY__{key}": value for key, value in telemetry.items()}
    _look_at_telemetry(load(None, LEAST | variables), report)
    return report


def test_what_would_be_served_to_an_operator_is_tried() -> None:
    """With the defaults there is nothing to say."""
    report = looked_at(TRACING="true")

    assert (report.exit_code, list(report.problems)) == (0, [])


def test_an_address_of_another_machine_is_a_problem() -> None:
    """A worker would not start there either."""
    report = looked_at(HTTP_ADDRESS="192.0.2.1")

    assert report.exit_code == 2
    assert "WORKER_TELEMETRY__HTTP_ADDRESS" in str(report.problems[0])


def test_neither_brokers_nor_a_store_are_asked_where_settings_forbid_it() -> None:
    """A login that would cross the network in clear stays here: each is one problem, of its setting."""
    distant = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": "192.0.2.1:9092", "WORKER_STATE__STORE": "redis://192.0.2.1"}
    states = {"WORKER_STATE__TENSORS": '{"h_in": "h_out"}', "WORKER_STATE__STORE_TIMEOUT_MS": "50"}

    report = examined(None, LEAST | distant | states)

    told = [finding.text for finding in report.problems if finding.text.startswith("WORKER_")]
    assert [text.split(":")[0] for text in told] == ["WORKER_KAFKA__SECURITY_PROTOCOL", "WORKER_STATE__STORE"]
    assert all("would cross the network unencrypted" in text for text in told)


def test_tracing_without_its_extra_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words as at the start."""
    monkeypatch.delitem(sys.modules, "worker.telemetry.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    report = looked_at(TRACING="true")

    assert report.exit_code == 2
    assert "pip install '.[otel]'" in str(report.problems[0])


@pytest.mark.parametrize(("last", "problem"), [(2, None), (3, "fails in the bucket 3 of WORKER_BATCHING__BUCKETS")])
def test_buckets_are_tried_as_a_start_would_try_them(last: int, problem: str | None, tmp_path: Path) -> None:
    """One in which the model fails keeps a worker from starting."""
    report = Report("inference-worker check --json")
    buckets = f'{{"x": {{"axis": 1, "boundaries": [1, {last}]}}}}'
    path = models.save(models.up_to_two(), tmp_path)

    _look_at_model(load_scoring(None, {"WORKER_MODEL__PATH": str(path), "WORKER_BATCHING__BUCKETS": buckets}), report)

    if problem is None:
        assert report.model is not None
        assert report.model.padded == ["input x axis 1 to 1, 2"]
        assert report.model.open_axes == {"x:1": 1}
    else:
        assert report.exit_code == 2
        assert problem in str(report.problems[0])


def test_a_full_batch_that_would_count_as_hung_is_a_problem(tmp_path: Path) -> None:
    """It would end the worker, which does not start so."""
    report = Report("inference-worker check --json")
    path = models.save(models.mlp(), tmp_path)

    _look_at_model(
        load_scoring(None, {"WORKER_MODEL__PATH": str(path), "WORKER_MODEL__RUN_TIMEOUT_S": "0.000001"}), report
    )

    assert report.exit_code == 2
    assert "a full batch, 32 rows, took" in str(report.problems[0])
    assert report.model is not None


@pytest.mark.parametrize(
    ("variables", "rows", "closed_by"),
    [
        ({}, {1, 32}, None),
        ({"MAX_BATCH_SIZE": "32768"}, {1, 2048}, "WORKER_BATCHING__MAX_BATCH_BYTES"),
        ({"MAX_BATCH_SIZE": "2048"}, {1, 2048}, None),
        ({"MAX_BATCH_BYTES": "1024"}, {1}, "WORKER_BATCHING__MAX_BATCH_BYTES"),
        ({"MAX_BATCH_TOKENS": "8192"}, {1, 4}, "WORKER_BATCHING__MAX_BATCH_TOKENS"),
    ],
)
def test_no_more_rows_are_measured_than_a_batch_can_have(
    variables: dict[str, str], rows: set[int], closed_by: str | None, tmp_path: Path
) -> None:
    """Rows of 8 KiB are 2,048 in 16 MiB: a rate of more at once no worker reaches."""
    report = Report("inference-worker check --json")
    path = models.save(models.identity("FP32", (2048,)), tmp_path)
    settings = {f"WORKER_BATCHING__{key}": value for key, value in variables.items()}

    _look_at_model(load_scoring(None, {"WORKER_MODEL__PATH": str(path), **settings}), report)

    assert report.model is not None
    assert set(report.model.run_seconds) == rows
    assert report.model.closed_by == closed_by


@pytest.mark.parametrize("limit", [None, 188, 189])
def test_a_state_that_its_changelog_does_not_take_is_a_problem(limit: int | None, tmp_path: Path) -> None:
    """With a key of one byte, as far as the cluster says its limit. A worker would not start."""
    report = Report("inference-worker check --json")
    path = str(models.save(models.gru(), tmp_path))
    model = {"WORKER_MODEL__PATH": path, "WORKER_STATE__TENSORS": '{"h_in": "h_out"}'}
    settings = load(None, LEAST | model)
    found = _look_at_model(load_scoring(None, LEAST | model), report, settings.state)
    limits = None if limit is None else {"answers": 10_000, "group-state": limit}
    report.cluster = cast("ClusterFacts", SimpleNamespace(max_bytes=limits))
    assert found is not None

    _look_at_room(found, settings.kafka, report, settings.state)

    assert report.exit_code == (2 if limit == 188 else 0)
    assert ["the state of a key has 88 bytes" in problem.text for problem in report.problems] == [True] * (limit == 188)


@pytest.mark.parametrize(("policy", "refused"), [("error", 1), ("null", 0)])
def test_a_model_tried_with_rows_of_no_finite_answer_is_warned_of(policy: str, refused: int, tmp_path: Path) -> None:
    """Neither the device check nor the request to try is of use then."""
    report = Report("inference-worker check --json")
    path = models.save(models.spreads(), tmp_path)

    _look_at_model(
        load_scoring(None, {"WORKER_MODEL__PATH": str(path), "WORKER_MODEL__NON_FINITE_OUTPUT": policy}), report
    )

    (warning,) = report.warnings
    assert "whose z is NaN or infinity" in warning.text
    assert warning.text.count("gets an error") == refused


@pytest.mark.parametrize(("dims", "warned"), [(262_144, 0), (262_145, 1)])
def test_a_row_that_no_request_can_bring_is_warned_of(dims: int, warned: int, tmp_path: Path) -> None:
    """By `MAX_REQUEST_BYTES`, and by the response topic where the cluster says its limit."""
    report = Report("inference-worker check --json")
    path = models.save(models.identity("FP32", (dims,)), tmp_path)
    model = _look_at_model(load_scoring(None, {"WORKER_MODEL__PATH": str(path)}), report)
    assert model is not None

    _look_at_room(model, load(None, LEAST).kafka, report, None)

    assert len(report.warnings) == warned


def test_rows_that_would_get_others_answers_are_a_problem(tmp_path: Path) -> None:
    """A start refuses such a model. An output that is not as its file says is a warning."""
    report, other = Report("inference-worker check --json"), Report("inference-worker check --json")

    for model, judged in ((models.softmax_of_columns(), report), (models.misdeclared(), other)):
        path = models.save(model, tmp_path)
        _look_at_model(load_scoring(None, {"WORKER_MODEL__PATH": str(path)}), judged)

    assert report.exit_code == 2
    assert "change one another's answers" in str(report.problems[0])
    assert other.exit_code == 0
    assert "the model gives y FP32[batch, 2] (declared y FP32[batch, 3])" in str(other.warnings[0])

"""What `check` finds without a cluster."""

from __future__ import annotations

import sys

import pytest

from tests.unit.test_settings import LEAST
from worker.commands.check import _look_at_telemetry
from worker.commands.check_report import Report
from worker.settings import load


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


def test_tracing_without_its_extra_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words as at the start."""
    monkeypatch.delitem(sys.modules, "worker.telemetry.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    report = looked_at(TRACING="true")

    assert report.exit_code == 2
    assert "pip install '.[otel]'" in str(report.problems[0])

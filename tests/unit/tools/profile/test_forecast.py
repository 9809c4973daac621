"""What one replica would do, in the units of an operator."""

from __future__ import annotations

import pytest

from tests.unit.tools.profile.builders import steady
from worker.tools.profile.engine.costs import MeasuredCosts
from worker.tools.profile.engine.forecast import Forecaster

SIZES = (1, 8, 32)
TRANSPORT = 0.005


def forecaster(fixed: float, per_row: float, requests: int = 3000) -> Forecaster:
    return Forecaster(MeasuredCosts(steady(SIZES, fixed=fixed, per_row=per_row)), TRANSPORT, requests=requests)


def test_latency_is_from_record_to_record() -> None:
    """What Kafka takes is part of it."""
    found = forecaster(0.01, 0.0)(1, 1.0)

    assert found.p50 == pytest.approx(TRANSPORT + 0.01, abs=0.001)
    assert found.mean_rows == 1.0
    assert found.lane_busy == pytest.approx(0.01, rel=0.1)


def test_the_ceiling_is_what_a_backlog_shows() -> None:
    """Full batches, one after the other."""
    assert forecaster(0.01, 0.0).ceiling(8) == pytest.approx(800, rel=0.02)


def test_the_same_question_has_the_same_answer() -> None:
    """The dice are thrown once and for all."""
    forecasts = forecaster(0.01, 0.001)

    assert forecasts(8, 200.0) == forecasts(8, 200.0)

"""What one replica would do, in the units of an operator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.tools.profile.builders import steady
from worker.tools.profile.engine.advice import HEAD_ROOM
from worker.tools.profile.engine.costs import MeasuredCosts
from worker.tools.profile.engine.forecast import Batching, Forecaster

SIZES = (1, 8, 32)
TRANSPORT = 0.005


def forecaster(fixed: float, per_row: float, requests: int = 3000) -> Forecaster:
    return Forecaster(MeasuredCosts(steady(SIZES, fixed=fixed, per_row=per_row)), TRANSPORT, requests=requests)


def test_latency_is_from_record_to_record() -> None:
    """What Kafka takes is part of it."""
    found = forecaster(0.01, 0.0)(Batching(1, 0.0), 1.0)

    assert found.p50 == pytest.approx(TRANSPORT + 0.01, abs=0.001)
    assert found.mean_rows == 1.0
    assert found.lane_busy == pytest.approx(0.01, rel=0.1)


def test_the_ceiling_is_what_a_backlog_shows() -> None:
    """Full batches, one after the other."""
    assert forecaster(0.01, 0.0).ceiling(8) == pytest.approx(800, rel=0.02)


def test_the_same_question_has_the_same_answer() -> None:
    """The dice are thrown once and for all."""
    forecasts = forecaster(0.01, 0.001)

    assert forecasts(Batching(8, 0.002), 200.0) == forecasts(Batching(8, 0.002), 200.0)


@pytest.mark.parametrize("rows", [8, 32])
@pytest.mark.parametrize(("fixed", "per_row"), [(0.005, 0.0001), (0.0001, 0.00001), (0.00002, 0.0000001), (0.0, 0.001)])
def test_no_linger_is_worth_its_wait(fixed: float, per_row: float, rows: int) -> None:
    """Batches fill while the lane is busy: hence the advice of none, at whatever load leaves head room."""
    forecasts = forecaster(fixed, per_row)
    ceiling = forecasts.ceiling(rows)

    for load in (0.05, 0.3, 1 - HEAD_ROOM):
        without, *with_linger = (
            forecasts(Batching(rows, linger), load * ceiling).p99 - TRANSPORT for linger in (0.0, 0.0005, 0.002, 0.01)
        )
        assert np.min(with_linger) > 0.94 * without

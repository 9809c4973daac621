"""The advice for one replica: its capacity, its limit, and its batch size."""

from __future__ import annotations

import pytest

from worker.tools.profile.advice import Advice, advise
from worker.tools.profile.sweep import RequestCost, Size

SIZES = (1, 4, 16, 64, 256)


def sizes(fixed: float, per_row: float = 0.0) -> list[Size]:
    return [Size(rows, 100, run, 1.5 * run, 0.0, 0.0) for rows in SIZES for run in [fixed + per_row * rows]]


def advised(
    fixed: float, per_row: float, request: float, rate: float | None = None, budget: float | None = None
) -> Advice:
    cost = RequestCost("json", 500, 0.7 * request, 0.3 * request)
    return advise(sizes(fixed, per_row), cost, 1, rate, budget)


@pytest.mark.parametrize(
    ("fixed", "per_row", "request_s", "limit", "rows"),
    [
        (0.01, 0.001, 50e-6, "model", 256),
        (0.0002, 0.000001, 200e-6, "encoding", 4),  # 256 rows would not help: the loop is busy with 4
        (0.0002, 0.000001, 1e-6, "loop", 64),
    ],
)
def test_the_slower_of_model_and_encoding_sets_the_size(
    fixed: float, per_row: float, request_s: float, limit: str, rows: int
) -> None:
    """Larger batches do not help a loop that is busy decoding."""
    found = advised(fixed, per_row, request_s)

    assert (found.limit, found.chosen.rows) == (limit, rows)
    assert found.settings["WORKER_BATCHING__MAX_BATCH_SIZE"] == rows


def test_a_rate_takes_replicas_with_head_room() -> None:
    """Three tenths of the capacity stay free."""
    one, many = (advised(0.01, 0.001, 50e-6, rate=rate) for rate in (1.0, 5000.0))

    assert (one.replicas, advised(0.01, 0.001, 50e-6).replicas) == (1, None)
    assert many.replicas is not None
    assert many.replicas * many.chosen.per_s * 0.7 >= 5000 > (many.replicas - 1) * many.chosen.per_s * 0.7


def test_a_budget_bounds_the_size() -> None:
    """Batches that take too long are not advised. Without Kafka's 8 ms, the rest is for waiting and the inference."""
    found = advised(0.01, 0.001, 50e-6, budget=0.1)

    assert found.chosen.rows == 16
    assert found.chosen.latency <= 0.1
    assert found.settings["WORKER_BATCHING__LATENCY_BUDGET_MS"] == pytest.approx(92.0)

"""Measurements with a default for everything, so that a test shows only what matters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from worker.tools.bench.columns import ONE_BY_ONE, PASS_THROUGH, Column, ContenderKind, Rate
from worker.tools.bench.course import Findings, Load, Measured
from worker.tools.bench.report import Account, Part, accounts_of
from worker.tools.load.figures import Flow, Heard

WORKER = Column("MAX_BATCH_SIZE=64 LINGER_MS=5", ContenderKind.WORKER, {"WORKER_BATCHING__MAX_BATCH_SIZE": "64"})
PARTS = (Part(WORKER, 64, 2), Part(ONE_BY_ONE, 1, 1), Part(PASS_THROUGH, 1, 1))
LOW = Load(500.0, Rate(500.0, is_part=False))
HIGH = Load(4000.0, Rate(0.5, is_part=True))


def measured(
    rate: float,
    p99: float | None = None,
    *,
    is_paced: bool = True,
    keeps_up: bool = True,
    unanswered: int = 0,
    errors: Mapping[str, int] | None = None,
    batched: bool = True,
) -> Measured:
    """One load; its other quantiles hang on the `p99`, milliseconds."""
    latency = {} if p99 is None else {"p50": p99 / 4, "p95": p99 / 2, "p99": p99, "p99.9": p99 * 2}
    error = '{"error": "odd"}' if errors else None
    heard = Heard(np.arange(0), np.zeros(0), errors=errors or {}, error=error)
    flow = Flow(rate, 1000, unanswered, latency, 1.5, is_paced, keeps_up)
    return Measured(flow, heard, 88.25, 110 * 1024 * 1024, 32.0 if batched else None, 1.5 if batched else None)


def found() -> Findings:
    """Two rounds of three contenders under two loads, one of which is more than a loop can do."""
    return Findings(
        {
            WORKER.name: [measured(8000.0), measured(8100.0)],
            ONE_BY_ONE.name: [measured(1600.0, batched=False)] * 2,
            PASS_THROUGH.name: [measured(123_456.0, is_paced=False, batched=False)] * 2,
        },
        {
            (WORKER.name, LOW): [measured(499.0, 20.0), measured(498.0, 22.0)],
            (WORKER.name, HIGH): [measured(3900.0, 400.0, keeps_up=False, unanswered=3)] * 2,
            (ONE_BY_ONE.name, LOW): [measured(500.0, 4.0, batched=False)] * 2,
            (PASS_THROUGH.name, LOW): [measured(500.0, 2.0, is_paced=False, batched=False)] * 2,
            (PASS_THROUGH.name, HIGH): [measured(4000.0, 3.0, batched=False)] * 2,
        },
        (LOW, HIGH),
    )


def accounts() -> tuple[Account, ...]:
    """What is reported of them."""
    return accounts_of(found(), PARTS)


FACTS = {
    "version": "0.1.0",
    "broker": {"is_embedded": True, "bootstrap_servers": None, "partitions": 4},
    "maximum_of": "window",
    "model": {"name": "digits", "path": "digits.onnx"},
    "request": {"encoding": "rows", "rows": 1, "bytes": 256, "open_axes": {}},
    "replicas": 1,
    "rounds": 2,
    "seconds": 2.0,
    "machine": {"system": "Linux x86_64", "processors": 2, "load_average": 0.5, "python": "3.11.7"},
}

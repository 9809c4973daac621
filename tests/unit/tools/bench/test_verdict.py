"""What `bench` says of batching: how much it buys, or why not to batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.tools.bench.measurements import LOW, PARTS, WORKER, accounts, measured
from worker.tools.bench.columns import ONE_BY_ONE, PASS_THROUGH, Column, ContenderKind
from worker.tools.bench.course import Findings, Measured
from worker.tools.bench.report import Account, Part, accounts_of
from worker.tools.bench.verdict import verdict

OTHER = Column("MAX_BATCH_SIZE=2", ContenderKind.WORKER, {"WORKER_BATCHING__MAX_BATCH_SIZE": "2"})


def told(
    ours: Measured, alone: float = 1000.0, copy: float = 50_000.0, *, parts: tuple[Part, ...] = PARTS, rows: int = 1
) -> str:
    """The verdict on one round of each."""
    maxima = {
        WORKER.name: [ours],
        ONE_BY_ONE.name: [measured(alone, batched=False)],
        PASS_THROUGH.name: [measured(copy, batched=False)],
    }
    found = verdict(accounts_of(Findings(maxima, {}, ()), parts), rows)
    assert found is not None
    return found


def test_what_batching_buys_is_told_with_the_latency_that_it_costs() -> None:
    """At the highest load that both answered."""
    assert verdict(accounts(), 1) == (
        "Batch: MAX_BATCH_SIZE=64 LINGER_MS=5 answers 5.0 times as many requests a second as one by one. "
        "At 500 a second its p99 is 21.0 ms, one by one's 4.0 ms."
    )


@pytest.mark.parametrize(
    ("ours", "copy", "why"),
    [
        (measured(1100.0)._replace(rows_per_batch=1.2), 50_000.0, "requests hardly share batches (1.2 rows in one)"),
        (measured(1100.0), 1300.0, "Kafka's clients set the limit and not the model"),
        (measured(1100.0)._replace(busy_seconds_per_second=1.9), 50_000.0, "the model takes as long for the rows"),
        (measured(700.0)._replace(busy_seconds_per_second=0.2), 50_000.0, "what a request costs besides the model"),
        (
            measured(1100.0)._replace(rows_per_batch=None, busy_seconds_per_second=None),
            50_000.0,
            "what a request costs",
        ),
    ],
)
def test_what_buys_nothing_is_not_to_be_batched(ours: Measured, copy: float, why: str) -> None:
    """And what it is that batches do not save."""
    said = told(ours, copy=copy)

    assert said.startswith(f"Do not batch here: {WORKER.name} answers {ours.flow.rate / 1000:.1f} times as many")
    assert f"as one by one, because {why}" in said


def test_a_request_of_several_rows_is_no_batch() -> None:
    """Its rows came together."""
    assert "because requests hardly share batches (32.0 rows in one)" in told(measured(1100.0), rows=32)


def test_rounds_that_overlap_may_differ_by_chance() -> None:
    """However far their medians lie apart."""
    maxima = {
        WORKER.name: [measured(900.0), measured(2000.0), measured(2100.0)],
        ONE_BY_ONE.name: [measured(1000.0, batched=False)] * 3,
    }

    said = verdict(accounts_of(Findings(maxima, {}, ()), PARTS), 1)

    assert said == (
        "No verdict on batching: rounds of MAX_BATCH_SIZE=64 LINGER_MS=5 and one by one overlap; "
        "measure on a quiet machine, or with more --rounds."
    )


def test_the_best_of_several_workers_is_named() -> None:
    """And a worker without settings of its own is called one."""
    maxima = {
        WORKER.name: [measured(8000.0)],
        OTHER.name: [measured(9000.0)],
        ONE_BY_ONE.name: [measured(1000.0, batched=False)],
    }
    parts = (PARTS[0], Part(OTHER, 2, 1), PARTS[1])
    plain = replace(PARTS[0], column=Column("worker", ContenderKind.WORKER))

    both = verdict(accounts_of(Findings(maxima, {}, ()), parts), 1)
    alone = verdict(accounts_of(Findings({**maxima, "worker": [measured(2000.0)]}, {}, ()), (plain, PARTS[1])), 1)

    assert (
        both
        == "Batch: MAX_BATCH_SIZE=2, the best of 2 workers, answers 9.0 times as many requests a second as one by one."
    )
    assert alone == "Batch: the worker answers 2.0 times as many requests a second as one by one."


def test_figures_that_say_nothing_of_batching_are_no_verdict() -> None:
    """Errors, the load generator's own pace, batches of one request."""
    single = (replace(PARTS[0], max_batch_size=1), *PARTS[1:])

    assert told(measured(8000.0, errors={"INTERNAL": 1})).endswith(f"{WORKER.name} answered with errors.")
    assert told(measured(8000.0, is_paced=False)).endswith(f"{WORKER.name} is the load generator's own (*).")
    assert told(measured(8000.0), parts=single).endswith("as a batch takes 1 row (MAX_BATCH_SIZE).")
    for said in (told(measured(8000.0, is_paced=False)), told(measured(8000.0), parts=single)):
        assert said.startswith("No verdict on batching: ")


@pytest.mark.parametrize("measured_alone", [WORKER.name, ONE_BY_ONE.name])
def test_what_was_interrupted_has_no_verdict(measured_alone: str) -> None:
    """One contender compares with nothing."""
    found: tuple[Account, ...] = accounts_of(Findings({measured_alone: [measured(8000.0)]}, {}, (LOW,)), PARTS)

    assert verdict(found, 1) is None

"""The cost of exactly once compared with at least once: results per second, CPU, and latency."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench.cases.latency import delays
from bench.ground import DEAR, SMALL, WORKER, Bench, Job, fill, response_topic, wait_for
from bench.pace import Load
from bench.running import running
from bench.tables import Bar, Section
from bench.turns import Figure, between, compared, look_on, take_turns
from worker.settings.sections import COMMIT_INTERVALS_MS

ONCE, EXACTLY = "at_least_once", "exactly_once"
PACES = (500, 3000)  # requests a second
HOW = """Raw rows of 256 float32, 4 partitions, batches of 64, every other setting at its default. The requests lie in
the topic before. Results are records that the worker counts as settled: a topic's end counts transactions, too."""
HOW_LATENCY = """The small model. From the instant a request is due, at a steady pace, until its answer is read."""


def measured(bench: Bench) -> Iterator[Section]:
    """Yields a table for each model, and one of latencies."""
    for title, hidden, usual in (("small model", SMALL, 300_000), ("compute-bound model", DEAR, 60_000)):
        rows = bench.rows(usual)
        job = Job(bench.cluster, [fill(bench.cluster, rows)], bench.model(hidden), 64)
        names = [f"{who}, {guarantee}" for who in bench.workers for guarantee in (ONCE, EXACTLY)]
        turns = compared(bench, names, partial(_measure, job=job, rows=rows, seconds=bench.asked.seconds))
        bars = turns.bars({names[0]: 0.9}, names[1])
        yield Section(f"Guarantees, {title}", HOW, turns.columns, turns.lines, bars)
    with Load.of_rows(bench.cluster.bootstrap_servers) as load:
        yield latency(bench, load)


def _measure(name: str, job: Job, rows: int, seconds: float) -> Figure:
    who, _, guarantee = name.partition(", ")
    job = replace(job, settings={"DELIVERY__GUARANTEE": guarantee})
    with response_topic(job.cluster) as responses, running(who, job, responses) as worker:
        wait_for(job.cluster, responses, 1, worker.why_dead)
        looks = look_on(worker, lambda: int(worker.total("records_settled_total")), rows, seconds)
    return between(looks[0], looks[-1])


def latency(bench: Bench, load: Load) -> Section:
    """Measures the latency of both guarantees at each pace."""
    found = take_turns(
        [ONCE, EXACTLY],
        bench.asked.rounds,
        lambda guarantee: delays(bench, load, WORKER, PACES, {"DELIVERY__GUARANTEE": guarantee}),
        bench.tell,
    )
    lines, bars = [], []
    for at, pace in enumerate(PACES):
        once, exactly = (
            [statistics.median(each[at][quantile] for each in found[name]) for quantile in (0, 1)]
            for name in (ONCE, EXACTLY)
        )
        lines.append([f"{pace:,}/s", *(f"{ms:.1f}" for ms in (*once, *exactly))])
        bars.append(Bar(f"p99 added at {pace:,}/s, ms", exactly[1] - once[1], most=1.5 * COMMIT_INTERVALS_MS[EXACTLY]))
    columns = ("load", "at least once p50 ms", "p99", "exactly once p50 ms", "p99")
    return Section("Guarantees, latency", HOW_LATENCY, columns, lines, bars)

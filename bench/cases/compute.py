"""A compute-bound model: does the work around the inference keep the model from running?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count

from bench.ground import DEAR, NATIVE, WORKER, Bench, Job, fill, response_topic, there
from bench.loops.alone import alone
from bench.running import running
from bench.tables import Bar, Section
from bench.turns import Figure, Turns, compared, measure

ALONE = "onnxruntime"
NAMES = (WORKER, NATIVE, ALONE, "hand_loop", "one_by_one", "arroyo", "faststream", "quix_sink")
HOW = """Raw rows of 256 float32, an MLP 256→2048→2048→2048→16, 4 partitions, one thread an inference. `onnxruntime` is
that library alone, while a pass-through moves as many records a second beside it as the worker last answered."""


def measured(bench: Bench) -> Iterator[Section]:
    """Yields a table for each batch size."""
    rows = bench.rows(100_000)
    requests = fill(bench.cluster, rows)
    for batch in bench.asked.batches or (64,):
        job = Job(bench.cluster, [requests], bench.model(DEAR), batch)
        run = partial(_run, job=job, rows=rows, seconds=bench.asked.seconds, pace=Pace())
        turns = compared(bench, bench.contenders(*NAMES), run)
        yield Section(f"Compute-bound model, batch {batch}", HOW, turns.columns, turns.lines, _bars(turns))
    bench.cluster.delete_topic(requests)


class Pace:
    """The worker's last rate, answers per second. The worker runs first of all, so there is always a rate."""

    rate = 0.0


def _run(name: str, job: Job, rows: int, seconds: float, pace: Pace) -> Figure:
    if name != ALONE:
        figure = measure(name, job, rows, seconds)
        pace.rate = figure.rate if name == WORKER else pace.rate
        return figure
    assert pace.rate, "the worker must take part: its rate is what the pass-through beside it moves"
    with response_topic(job.cluster) as responses, running("pass_through", job, responses, round(pace.rate)):
        before = next(n for n in (there(job.cluster, responses) for _ in count()) if n)
        figure = alone(job.model, job.batch, seconds)
        assert there(job.cluster, responses) > before, "nothing was moved beside it"
    return figure


def _bars(turns: Turns) -> list[Bar]:
    beside = {ALONE: 0.95} | {peer: 1.0 for peer in NAMES if peer not in {WORKER, NATIVE, ALONE}}
    beside |= {name: 0.98 for name in turns.figures if name.startswith(f"{WORKER}@")}
    busy = Bar("the part of the time that the worker's lane is busy", turns.busy(WORKER), 0.95)
    cost = turns.ratio(WORKER, NATIVE, lambda run: run.cpu)
    return [*turns.bars(beside), Bar(f"CPU of a result, {WORKER} beside {NATIVE}", cost, most=1.05), busy]

"""Raw rows and a very cheap model: this measures the cost of everything around the inference."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.ground import NATIVE, SMALL, WORKER, Bench, Job, fill
from bench.tables import Section
from bench.turns import compared, measure

NAMES = (WORKER, NATIVE, "floor", "hand_loop", "one_by_one", "pass_through", "arroyo", "faststream", "quix_sink")
BARS = {NATIVE: 0.6, "floor": 0.8, "hand_loop": 2.0, "faststream": 5.0, "arroyo": 5.0}
HOW = """Rows of 256 float32 (1 KiB, keyed), an MLP 256→256→16, 4 partitions, one thread an inference, everything on in
the worker (validation, order, ledger, delivery reports, metrics). The requests lie in the topic before."""


def measured(bench: Bench) -> Iterator[Section]:
    """Yields a table for each batch size."""
    rows = bench.rows(400_000)
    requests = fill(bench.cluster, rows)
    for batch in bench.asked.batches or (64, 256):
        job = Job(bench.cluster, [requests], bench.model(SMALL), batch)
        run = partial(measure, job=job, rows=rows, seconds=bench.asked.seconds)
        turns = compared(bench, bench.contenders(*NAMES), run)
        yield Section(f"Raw rows, small model, batch {batch}", HOW, turns.columns, turns.lines, turns.bars(BARS))
    bench.cluster.delete_topic(requests)

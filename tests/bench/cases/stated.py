"""What it costs that plain rows say what they are: two headers more to read, and two more in each answer."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.measuring.bench import SMALL, Bench
from tests.bench.measuring.ground import HEADERS, Headers, Job, fill
from tests.bench.measuring.results import Section
from tests.bench.measuring.running import WORKER
from tests.bench.measuring.throughput import compared, measure

STATED: Headers = [*HEADERS, ("datatype", b"FP32"), ("rows", b"1")]
BARE, SAYING = f"{WORKER}, raw", f"{WORKER}, raw with datatype and rows"
HOW = """Rows of 256 float32 (1 KiB, keyed), an MLP 256→256→16, batches of 64, with the header `content-type` alone and
with `datatype` and `rows`, which the answers then have, too."""


def measured(bench: Bench) -> Iterator[Section]:
    """Beside rows without them."""
    rows = bench.rows(400_000)
    topics = {BARE: fill(bench.cluster, rows), SAYING: fill(bench.cluster, rows, headers=STATED)}
    model = bench.model(SMALL)
    turns = compared(
        bench,
        [BARE, SAYING],
        lambda name: measure(WORKER, Job(bench.cluster, [topics[name]], model, 64), rows, bench.asked.seconds),
    )
    for topic in topics.values():
        bench.cluster.delete_topic(topic)
    bars = turns.bars({BARE: 0.7}, SAYING)
    yield Section("Rows that say what they are, batch 64", HOW, turns.columns, turns.lines, bars)

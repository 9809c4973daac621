"""ONNX Runtime alone at each batch size: finds where a larger batch stops paying, and the cost of changing sizes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from bench.gpu.networks import Feeds, Network
from bench.gpu.results import NETWORK, Case, Column, Line, Part, Stage, of
from bench.gpu.sessions import answered, loaded, milliseconds

PARTS = 2  # a line has two figures, so each gets half of the time for a measurement
ENOUGH = 0.9  # the knee is the first size with this share of the best rate
HOW = """One session, one batch size after the other. First: the first run of that size, in which libraries choose their
kernels. Run: as the worker runs it, from the host's memory to the host's. After another size: each run after one of the
size above in the table. Medians, milliseconds."""
COLUMNS = (
    *NETWORK,
    Column("batch", "batch", "d"),
    Column("first_ms", "first", ",.3g"),
    Column("run_ms", "run", ",.3g"),
    Column("other_ms", "after another size", ",.3g"),
    Column("rate", "rows/s", ",.0f"),
)


def cases(stage: Stage) -> Iterator[Case]:
    """Yields each network, the quickest to prepare first. Ragged texts are left out: each batch has another shape."""
    for network in reversed(stage.networks):
        if not network.is_ragged:
            yield Case(of(network), partial(_network, stage, network))


def _network(stage: Stage, network: Network) -> Iterator[Line]:
    path, seconds = stage.model(network), stage.seconds / PARTS
    model = loaded(path, stage.device, max(stage.batches))
    run = partial(answered, model)
    before: Feeds | None = None
    for batch in stage.batches:
        feeds = network.feeds(batch)
        began = time.perf_counter()
        run(feeds)
        first_ms = (time.perf_counter() - began) * 1000
        run_ms = milliseconds(partial(run, feeds), seconds)
        yield {
            "batch": batch,
            "first_ms": first_ms,
            "run_ms": run_ms,
            "other_ms": None if before is None else _in_turn(run, before, feeds, seconds),
            "rate": batch / run_ms * 1000,
        }
        before = feeds


def _in_turn(run: Callable[[Feeds], object], before: Feeds, feeds: Feeds, seconds: float) -> float:
    """Measures the milliseconds of a run with `feeds`, each after a run with `before`."""
    both = milliseconds(lambda: (run(before), run(feeds)), seconds)
    return both - milliseconds(partial(run, before), seconds / 2)


def notes(lines: Sequence[Line]) -> list[str]:
    """Returns a sentence on the knee of each network."""
    measured = [line for line in lines if "rate" in line]
    found = []
    for name, group in itertools.groupby(measured, lambda line: f"{line['network']}, {line['precision']}"):
        rates = {int(line["batch"] or 0): float(line["rate"] or 0) for line in group}
        best = max(rates.values())
        rows, rate = next((rows, rate) for rows, rate in sorted(rates.items()) if rate >= ENOUGH * best)
        gain = rate / rates[min(rates)]
        found.append(f"{name}: the knee is at {rows} rows, {rate / best:.0%} of the best, {gain:.1f} times the first")
    return found


PART = Part("knee", "On a GPU: ONNX Runtime alone", HOW, COLUMNS, cases, limit=240, notes=notes)

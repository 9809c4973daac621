"""What a linger is worth: fixed ones and `auto`, in simulations of one replica under steady loads and bursts.

    python -m tests.bench.lingers                # two minutes, no broker
    python -m tests.bench.lingers --requests 4000 --model flat

The batcher is the worker's own, in virtual time (`tests/bench/simulation.py`). Two models are measured
before, on this machine; two are made up: one takes as long for a batch as for a row, as a GPU does, the other so much
a row. The least p99 of a load goes to a different linger with each of them. Figures are medians over the seeds, without
the first quarter of the requests, in which `auto` learns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from tests.bench.measuring.results import Bar, Section, show
from tests.bench.simulation import Conduct, Floats, simulate
from tests.models import mlp, save
from worker.core.batching.batcher import BatchPolicy
from worker.core.batching.linger import Linger
from worker.core.tensors.stacking import Stacker
from worker.inference import load
from worker.settings import ModelSettings
from worker.tools.profile.engine.costs import (
    ANSWER_SECONDS,
    BATCH_SECONDS,
    HAND_OVER_SECONDS,
    TAKE_SECONDS,
    Costs,
    MeasuredCosts,
)
from worker.tools.profile.engine.forecast import poisson
from worker.tools.profile.engine.sweep import Bench, sweep

BATCH = 64
FIXED = (0, 2, 5, 10, 20, 50)  # ms
MS = 1000.0
ANY_SIZE = 1 << 62
LEARNING = 4  # a part of so many is not judged
SIZES = [1, 2, 4, 8, 16, 32, 64]
SWEEP_SECONDS = 0.5  # for each size
PERIOD = 0.1  # from burst to burst, give or take a fifth: seconds
HOW = f"""One replica, batches of {BATCH}, in virtual time: the worker's batcher, this model's inferences, the loop's
own time. Loads in percent are Poisson, of {{ceiling:,.0f}}/s at most; `64 in 1 ms` is a burst of so many requests
spread over so long, every {PERIOD * MS:.0f} ms, give or take a fifth. p99 in ms, with each fixed linger and with
`auto`; what the lane works for a row, in us, without linger and with `auto`. {{model}}"""


@dataclass(frozen=True, slots=True)
class Line:
    """An inference of `fixed` and `per_row` seconds; the loop's steps as measured for others."""

    fixed: float
    per_row: float

    def take(self, requests: int) -> float:
        """Of a poll."""
        return TAKE_SECONDS * requests

    def stack(self, rows: int) -> float:
        """Of a batch."""
        return BATCH_SECONDS

    def run(self, rows: int, luck: float) -> float:
        """Always the same."""
        return self.fixed + self.per_row * rows

    def hand_over(self) -> float:
        """From one inference to the next."""
        return HAND_OVER_SECONDS

    def answer(self, requests: int, rows: int) -> float:
        """Of a batch."""
        return ANSWER_SECONDS * requests


class Calm(MeasuredCosts):
    """Measured, and always the median: what a busy machine adds says nothing of lingers."""

    def run(self, rows: int, luck: float) -> float:
        """Between two sizes that were measured, between their medians."""
        return self._between(self._median, rows)


SYNTHETIC: Mapping[str, tuple[str, Costs]] = {
    "flat": ("Made up: 5 ms, and 10 µs a row.", Line(5e-3, 1e-5)),
    "linear": ("Made up: 0.2 ms, and 0.5 ms a row.", Line(2e-4, 5e-4)),
}
Arrivals = Callable[[float, int, int], Floats]  # of a ceiling (requests a second), requests and a seed


def steady(part: float, ceiling: float, requests: int, seed: int) -> Floats:
    """Poisson, at a part of the most that one replica does."""
    return poisson(part * ceiling, requests, seed)


def bursts(sizes: Sequence[tuple[float, int]], spread: float, _ceiling: float, requests: int, seed: int) -> Floats:
    """Every tenth of a second, bursts of such sizes at such offsets (seconds), each spread evenly over so long."""
    dice = np.random.default_rng(seed)
    count = requests // sum(size for _, size in sizes)
    begins = np.cumsum(PERIOD * dice.uniform(0.8, 1.2, count))
    parts = [begin + offset + dice.uniform(0, spread, size) for begin in begins for offset, size in sizes]
    return np.sort(np.concatenate(parts))


def on_and_off(part: float, on: float, off: float, ceiling: float, requests: int, seed: int) -> Floats:
    """Poisson at a part of the most for `on` seconds or so, then nothing for `off`."""
    dice = np.random.default_rng(seed)
    busy = np.cumsum(dice.exponential(1 / (part * ceiling), requests))  # seconds of being on
    changes = np.cumsum(dice.exponential(on, max(1, 2 * int(busy[-1] / on))))
    pauses = np.concatenate([[0.0], np.cumsum(dice.exponential(off, len(changes)))])
    arrivals: Floats = busy + pauses[np.searchsorted(changes, busy)]
    return arrivals


LOADS: Mapping[str, Arrivals] = {
    **{f"{part:.0%}": partial(steady, part) for part in (0.01, 0.1, 0.5, 0.9)},
    "32 at once": partial(bursts, [(0.0, 32)], 0.0),
    "32 in 1 ms": partial(bursts, [(0.0, 32)], 0.001),
    "32 in 5 ms": partial(bursts, [(0.0, 32)], 0.005),
    "48 in 3 ms": partial(bursts, [(0.0, 48)], 0.003),
    "64 in 1 ms": partial(bursts, [(0.0, 64)], 0.001),
    "64 in 20 ms": partial(bursts, [(0.0, 64)], 0.02),
    "32, 3 ms later 32": partial(bursts, [(0.0, 32), (0.003, 32)], 0.0),
    "8, 2 ms later 40": partial(bursts, [(0.0, 8), (0.002, 40)], 0.0005),
    "50% on, 50 ms of 250": partial(on_and_off, 0.5, 0.05, 0.2),
}


class Figures(NamedTuple):
    """Of one linger under one load: seconds, requests a second, seconds of the lane for a row, the wait in the end."""

    p50: float
    p99: float
    rate: float
    lane: float
    wait: float


def figures(costs: Costs, arrivals: Floats, linger: float | None, seed: int) -> Figures:
    """With a fixed linger in seconds, or with `auto`: None."""
    auto = None if linger is not None else Linger(lambda _kind: BATCH)
    policy = BatchPolicy(BATCH, ANY_SIZE, linger or 0.0)
    found = simulate(arrivals, policy, costs, conduct=Conduct(chunk=BATCH), seed=seed, auto=auto)
    judged = found.latencies[len(arrivals) // LEARNING :]
    p50, p99 = np.quantile(judged, (0.5, 0.99), method="higher")
    wait = auto.wait if auto else policy.linger
    return Figures(float(p50), float(p99), len(arrivals) / found.seconds, found.busy / len(arrivals), wait)


class Cell(NamedTuple):
    """One load: each fixed linger by its milliseconds, and `auto`."""

    fixed: Mapping[int, Figures]
    auto: Figures

    @property
    def p99_share(self) -> float:
        """Of `auto`, beside the best fixed one's."""
        return self.auto.p99 / min(one.p99 for one in self.fixed.values())

    @property
    def rate_share(self) -> float:
        """The same for requests a second."""
        return self.auto.rate / max(one.rate for one in self.fixed.values())


def cell(costs: Costs, arrivals: Arrivals, ceiling: float, requests: int, seeds: Sequence[int]) -> Cell:
    """Everything under one load, each figure the median over the seeds."""

    def median(linger: float | None) -> Figures:
        runs = [figures(costs, arrivals(ceiling, requests, seed), linger, seed) for seed in seeds]
        return Figures(*map(statistics.median, zip(*runs, strict=True)))

    return Cell({ms: median(ms / MS) for ms in FIXED}, median(None))


def most(costs: Costs) -> float:
    """Requests a second of a replica that always has a backlog."""
    found = simulate(np.zeros(20_000), BatchPolicy(BATCH, ANY_SIZE, 0.0), costs, conduct=Conduct(chunk=BATCH))
    return len(found.latencies) / found.seconds


def section(name: str, said: str, costs: Costs, requests: int, seeds: Sequence[int]) -> Section:
    """The table of one model."""
    ceiling = most(costs)
    cells = {load: cell(costs, arrivals, ceiling, requests, seeds) for load, arrivals in LOADS.items()}
    columns = ("load", *(f"{ms} ms" for ms in FIXED), "auto", "of the best", "lane with 0", "auto", "auto waits ms")
    bars = [
        Bar("p99 of auto beside the best fixed linger, at worst", max(c.p99_share for c in cells.values()), most=1.05),
        Bar("requests a second, at worst", min(c.rate_share for c in cells.values()), least=0.95),
    ]
    lines = [_line(load, found) for load, found in cells.items()]
    return Section(f"Lingers in simulation: {name}", HOW.format(ceiling=ceiling, model=said), columns, lines, bars)


def _line(load: str, found: Cell) -> list[str]:
    lane = [f"{one.lane * 1e6:,.0f}" for one in (found.fixed[0], found.auto)]
    p99s = [f"{one.p99 * MS:.2f}" for one in (*found.fixed.values(), found.auto)]
    return [load, *p99s, f"{found.p99_share:.2f}", *lane, f"{found.auto.wait * MS:g}"]


def measured(hidden: Sequence[int], folder: Path) -> tuple[str, Costs]:
    """A multilayer perceptron of 256 floats on this machine: what it is, and what its batches cost."""
    path = save(mlp(256, hidden, 16), folder)
    model = load(ModelSettings(path=path, device="cpu"), max_batch_size=2, max_request_rows=BATCH)
    stacker = Stacker(model.signature, refuse_non_finite_input=True, refuse_non_finite_output=True)
    sizes = sweep(Bench(model, stacker, 1, time.perf_counter), SIZES, SWEEP_SECONDS, lambda _done: None).sizes
    took = ", ".join(f"{size.run_seconds(50) * 1e6:,.0f} for {size.rows}" for size in sizes)
    return f"Measured, medians in us: {took} rows.", Calm(sizes)


def models(folder: Path) -> Mapping[str, tuple[str, Costs]]:
    """What each is, and its costs."""
    dense = {"MLP of 256": (256,), "MLP of 3 × 2048": (2048, 2048, 2048)}
    return {**{name: measured(hidden, folder) for name, hidden in dense.items()}, **SYNTHETIC}


def main() -> int:
    """The command line. 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description="Lingers in simulation.")
    parser.add_argument("--requests", type=int, default=12_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--model", help="the one whose name holds this")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory() as folder:
        found = models(Path(folder))
    sections = [
        section(name, said, costs, asked.requests, range(asked.seeds))
        for name, (said, costs) in found.items()
        if asked.model is None or asked.model in name
    ]
    for each in sections:
        show(each, console)
    return 0 if all(bar.is_kept for each in sections for bar in each.bars) else 1


if __name__ == "__main__":
    sys.exit(main())

"""What a linger is worth: `auto` beside fixed ones, in simulation and on the broker."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.bench.lingers import LEARNING, LOADS, MS, Arrivals, models, section
from tests.bench.measuring.bench import OUTPUTS, Bench
from tests.bench.measuring.ground import WIDTH, Job
from tests.bench.measuring.pace import Load, answering
from tests.bench.measuring.results import Bar, Section
from tests.bench.measuring.running import WORKER
from tests.bench.measuring.throughput import lane_seconds, take_turns
from tests.models import for_rows, mlp, save
from worker.tools.load.replica import Replica

REQUESTS, SEEDS = 12_000, 3  # of the simulations
BATCH = 64
HIDDEN = (2048,) * 6  # long beside what the broker and the polls take
AUTO = "auto"
LINGERS = ("0", "2", "5", "10", AUTO)
ON_BROKER = ("10%", "50%", "32 in 1 ms", "48 in 3 ms")
HOW = f"""Rows of 256 float32, an MLP of six layers of 2048 exported for {BATCH} rows, so that a batch takes as long for
one row as for {BATCH}, as on many a GPU; 4 partitions. Loads as in simulation, of {{most:,.0f}}/s at most. Open loop: a
request counts from the instant it is due until its answer is read. Medians of the rounds, without the first quarter of
the requests; in brackets the least and the most p99."""


def measured(bench: Bench) -> Iterator[Section]:
    """A table for each model in simulation, and one from the broker."""
    folder = bench.folder / "lingers"
    folder.mkdir(exist_ok=True)
    for name, (said, costs) in models(folder).items():
        bench.tell(f"simulating {name}")
        yield section(name, said, costs, REQUESTS, range(SEEDS))
    yield on_broker(bench, folder)


class Served(NamedTuple):
    """One load in one round: latencies in ms, the lane's time for a row in us, the linger in the end in ms."""

    p50: float
    p99: float
    lane: float
    linger: float


def on_broker(bench: Bench, folder: Path) -> Section:
    """The lingers take turns."""
    model = save(for_rows(BATCH, mlp(WIDTH, HIDDEN, OUTPUTS)), folder, "flat")
    with Load.of_rows(bench.cluster.bootstrap_servers) as load:
        with answering(WORKER, _job(bench, model, "0"), load):
            ceiling = load.most(bench.asked.seconds)
        bench.tell(f"the most that comes through: {ceiling:,.0f}/s")
        found = take_turns(
            LINGERS, bench.asked.rounds, lambda linger: _round(bench, load, model, linger, ceiling), bench.tell
        )
    lines, bars = [], []
    for at, name in enumerate(ON_BROKER):
        served = {linger: [each[at] for each in rounds] for linger, rounds in found.items()}
        lines += [[name if linger == LINGERS[0] else "", linger, *_cells(rounds)] for linger, rounds in served.items()]
        bars.append(Bar(f"p99 of auto, {name}, beside the best fixed linger's slowest round", _share(served), most=1.0))
    columns = ("load", "LINGER_MS", "p50 ms", "p99", "", "lane us each", "linger in the end, ms")
    return Section("Lingers on the broker", HOW.format(most=ceiling), columns, lines, bars)


def _share(served: Mapping[str, Sequence[Served]]) -> float:
    """Of `auto` beside the fixed one whose median is best: no worse than what that one does when it is unlucky."""
    fixed = [[each.p99 for each in rounds] for linger, rounds in served.items() if linger != AUTO]
    best = min(fixed, key=statistics.median)
    return statistics.median(each.p99 for each in served[AUTO]) / max(best)


def _cells(rounds: Sequence[Served]) -> list[str]:
    p50, p99, lane, linger = map(statistics.median, zip(*rounds, strict=True))
    p99s = [each.p99 for each in rounds]
    return [f"{p50:.1f}", f"{p99:.1f}", f"({min(p99s):.1f}-{max(p99s):.1f})", f"{lane:,.0f}", f"{linger:g}"]


def _job(bench: Bench, model: Path, linger: str) -> Job:
    return Job(bench.cluster, [], model, BATCH, {"BATCHING__LINGER_MS": linger, "MODEL__FIXED_BATCH": "pad"})


def _round(bench: Bench, load: Load, model: Path, linger: str, ceiling: float) -> list[Served]:
    """One worker under one load after the other."""
    with answering(WORKER, _job(bench, model, linger), load) as contender:
        assert contender.replica is not None
        served = [_served(bench, load, contender.replica, LOADS[name], ceiling) for name in ON_BROKER]
    told = ", ".join(f"{name}: p99 {each.p99:.1f}" for name, each in zip(ON_BROKER, served, strict=True))
    bench.tell(f"LINGER_MS={linger}: {told}")
    return served


def _served(bench: Bench, load: Load, replica: Replica, arrivals: Arrivals, ceiling: float) -> Served:
    seconds = bench.asked.seconds * LEARNING / (LEARNING - 1)
    dues = arrivals(ceiling, round(ceiling * seconds), 1)
    dues = dues[dues < seconds]
    before = lane_seconds(replica)
    waited = load.latencies(dues, replica.check)
    p50, p99 = np.quantile(waited[len(dues) // LEARNING :], (0.5, 0.99)) * MS
    lane = (lane_seconds(replica) - before) / len(dues) * 1e6
    return Served(float(p50), float(p99), lane, replica.total("linger_seconds") * MS)

"""The latency of an answer, at parts of the worker's maximum rate, and at a very low rate."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bench.ground import SMALL, WORKER, Bench, Job
from bench.pace import OUTSTANDING, Load, answering, steady
from bench.running import Running
from bench.tables import Bar, Section
from bench.turns import lane_seconds, take_turns

ECHO, LOOPS = "echo", ("one_by_one", "one_by_one_eager")
PARTS = (0.1, 0.5, 0.8)
BATCH = 64
LINGER = 5.0  # ms
LOW = 500  # requests a second
WARM_UP = 2.0  # seconds at each pace that are not counted
MS = 1000.0
HOW = f"""Rows of 256 float32, an MLP 256→256→16, batches of {BATCH}, LINGER_MS={LINGER:g}, 4 partitions. Open loop:
a request counts from the instant it is due until its answer is read. The most that comes through is a closed
loop's, {OUTSTANDING} requests outstanding; allowed is the linger, twice one batch's inference, and 1.5 times echo's
p99."""
HOW_LOW = f"""{LOW} requests a second, the worker with LINGER_MS=0."""


class Delay(NamedTuple):
    """Milliseconds: median and p99 of the answers, and one batch's inference (NaN for a loop)."""

    p50: float
    p99: float
    inference: float


def measured(bench: Bench) -> Iterator[Section]:
    """Yields the tables: under load, and with little to do."""
    with Load.of_rows(bench.cluster.bootstrap_servers) as load:
        yield under_load(bench, load)
        yield with_little(bench, load)


def under_load(bench: Bench, load: Load) -> Section:
    """Compares the worker with the echo, at parts of the worker's maximum rate."""
    with answering(WORKER, Job(bench.cluster, [], bench.model(SMALL), BATCH), load):
        rate = statistics.median(load.most(bench.asked.seconds) for _ in range(3))
    bench.tell(f"the most that comes through: {rate:,.0f}/s")
    paces = [round(rate * part) for part in PARTS]
    waiting = {"BATCHING__LINGER_MS": f"{LINGER:g}"}
    names = [WORKER, ECHO]
    found = take_turns(names, bench.asked.rounds, lambda name: delays(bench, load, name, paces, waiting), bench.tell)
    lines, bars = [], []
    for at, (part, pace) in enumerate(zip(PARTS, paces, strict=True)):
        ours, theirs = ([each[at] for each in found[name]] for name in names)
        allowed = [LINGER + 2 * our.inference + 1.5 * their.p99 for our, their in zip(ours, theirs, strict=True)]
        share = statistics.median(our.p99 / most for our, most in zip(ours, allowed, strict=True))
        lines.append([f"{part:.0%}, {pace:,}/s", *_cells(ours), *_cells(theirs), f"{statistics.median(allowed):.1f}"])
        bars.append(Bar(f"p99 at {part:.0%}, as a part of what is allowed", share, most=1.0))
    columns = ("load", "worker p50 ms", "p99", "echo p50 ms", "p99", "allowed p99")
    return Section(f"Latency under load, of {rate:,.0f}/s at most", HOW, columns, lines, bars)


def with_little(bench: Bench, load: Load) -> Section:
    """Compares the worker without linger, at a low rate, with loops that take one at a time and other checkouts."""
    eager = {"BATCHING__LINGER_MS": "0"}
    names = [*bench.workers, *LOOPS, ECHO]
    found = take_turns(names, bench.asked.rounds, lambda name: delays(bench, load, name, [LOW], eager)[0], bench.tell)
    lines = [[name, *_cells(runs)] for name, runs in found.items()]
    limits = [(LOOPS[0], 0, 1.0), *((before, at, 1.05) for before in bench.workers[1:] for at in (0, 1))]
    bars = [
        Bar(
            f"the worker's {('p50', 'p99')[at]}, as a part of {base}'s",
            _share(found[WORKER], found[base], at),
            most=most,
        )
        for base, at, most in limits
    ]
    return Section(f"Latency at {LOW} requests a second, no linger", HOW_LOW, ("", "p50 ms", "p99"), lines, bars)


def _share(ours: list[Delay], theirs: list[Delay], at: int) -> float:
    return statistics.median(our[at] / their[at] for our, their in zip(ours, theirs, strict=True))


def _cells(runs: list[Delay]) -> list[str]:
    return [f"{statistics.median(delay[at] for delay in runs):.1f}" for at in (0, 1)]


def delays(bench: Bench, load: Load, name: str, paces: Sequence[int], settings: dict[str, str]) -> list[Delay]:
    """Measures one process, at one pace after the other."""
    job = Job(bench.cluster, [], bench.model(SMALL), BATCH, settings)
    with answering(name, job, load) as contender:
        found = [_delay(load, contender, pace, WARM_UP + bench.asked.seconds) for pace in paces]
    told = ", ".join(f"{pace:,}/s {d.p50:.1f} p50 {d.p99:.1f} p99 ms" for pace, d in zip(paces, found, strict=True))
    bench.tell(f"{name}: {told}")
    return found


def _delay(load: Load, contender: Running, pace: int, seconds: float) -> Delay:
    runs, lane = _runs(contender), lane_seconds(contender)
    found = load.latencies(steady(pace, seconds), contender.check)
    p50, p99 = np.quantile(found[round(WARM_UP * pace) :], (0.5, 0.99)) * MS
    inferred = (lane_seconds(contender) - lane) / max(1.0, _runs(contender) - runs)
    return Delay(float(p50), float(p99), inferred * MS)


def _runs(contender: Running) -> float:
    return 0.0 if contender.replica is None else contender.total("inference_seconds_count")

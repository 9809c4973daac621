"""Compares `LINGER_MS=auto` with fixed lingers in a simulation: one replica in virtual time, with the worker's batcher.

    python -m bench.lingers [--requests 12000] [--seeds 3]

    arrivals ──take──▶ Batcher ──stack──▶ lane ──split, answer──▶ latencies

It has the turns of the worker's loop. The loop is one thread and the lane another: while the lane runs a batch, the
loop takes, answers, and stacks a full group ahead. A group that is due waits for an idle lane and keeps filling. Every
step of the loop takes its time. There is no broker and no failure. The only back-pressure is the loop's own: it takes
nothing while enough full groups wait. Equal arguments give equal figures.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from bench.tables import Bar, Section, show
from worker.core.batching.batcher import Batcher, BatchPolicy, Group
from worker.core.batching.linger import Linger
from worker.core.chunk import Chunk, Prediction
from worker.core.records import BatchKind, ModelKey, Partition, Record, ReplyForm

Floats = NDArray[np.float64]

BATCH = 64
FIXED = (0, 2, 5, 10, 20, 50)  # ms
MS = 1000.0
ANY_SIZE = 1 << 62
LEARNING = 4  # the first of so many parts of a load is not judged
PERIOD = 0.1  # seconds from burst to burst, plus or minus a fifth
SHAPES = ((1,),)  # of every request
_PARTITION = Partition("simulated", 0)
_FORM = ReplyForm("application/octet-stream")
_MODEL = ModelKey("", "")
_KIND = BatchKind(_MODEL, SHAPES)
HOW = f"""One replica, batches of {BATCH}, in virtual time: the worker's batcher and the loop's own time. Loads in
percent are Poisson, of {{ceiling:,.0f}}/s at most; `32 in 1 ms` is a burst of so many requests spread over so long,
every {PERIOD * MS:.0f} ms, give or take a fifth. p99 in ms, with each fixed linger and with `auto`; the lane's time for
a row in us, without linger and with `auto`."""


class Costs(Protocol):
    """The seconds of each step. `run` and `hand_over` take the lane's time, the other steps the loop's."""

    def take(self, requests: int) -> float: ...
    def stack(self, rows: int) -> float: ...
    def run(self, rows: int, luck: float) -> float: ...
    def hand_over(self) -> float: ...
    def answer(self, requests: int, rows: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Line:
    """The costs of an inference of `fixed` and `per_row` seconds. The loop's were measured on a worker in 2026."""

    fixed: float
    per_row: float

    def take(self, requests: int) -> float:
        return 5e-6 * requests

    def stack(self, rows: int) -> float:
        return 40e-6

    def run(self, rows: int, luck: float) -> float:
        return self.fixed + self.per_row * rows

    def hand_over(self) -> float:
        return 100e-6

    def answer(self, requests: int, rows: int) -> float:
        return 5e-6 * requests


MODELS: Mapping[str, Costs] = {
    "flat: 5 ms, and 10 µs a row": Line(5e-3, 1e-5),
    "linear: 0.2 ms, and 0.5 ms a row": Line(2e-4, 5e-4),
}


@dataclass(frozen=True, slots=True)
class Conduct:
    """The loop's behaviour: the worker's settings of these names, and `chunk`, the most requests of a poll."""

    inflight_batches: int = 2
    chunk: int = 256


class Simulated(NamedTuple):
    """The result. `latencies`: seconds from arrival to answer of each request, in the order of arrival.

    `busy`: the seconds for which the lane ran. `seconds`: the time from the first arrival to the last answer.
    """

    latencies: Floats
    batch_rows: Sequence[int]
    busy: float
    seconds: float


def simulate(
    arrivals: Floats,
    policy: BatchPolicy,
    costs: Costs,
    *,
    request_rows: int = 1,
    row_bytes: int = 1,
    conduct: Conduct = Conduct(),
    seed: int = 0,
    auto: Linger | None = None,
) -> Simulated:
    """Serve requests of `request_rows` rows that arrive at these ascending seconds, until the last one has its answer.

    `auto` replaces the policy's linger.
    """
    count = len(arrivals)
    records = [Record(_PARTITION, number, None, None, (), None) for number in range(count)]
    rows, sizes = [request_rows] * count, [request_rows * row_bytes] * count
    requests = Chunk(_MODEL, _FORM, records, rows, [SHAPES] * count, [], sizes, range(count))
    replica = _Replica(arrivals, requests, policy, costs, conduct, np.random.default_rng(seed), auto)
    while replica.unanswered:
        replica.turn()
    seconds = float(replica.answered.max() - arrivals[0])
    return Simulated(replica.answered - arrivals, replica.batch_rows, replica.busy, seconds)


class _Running(NamedTuple):
    finishes_at: float
    seconds: float
    group: Group


class _Replica:
    """The loop, its lane and the time. Requests that arrived and were not taken wait, as if in Kafka."""

    def __init__(
        self,
        arrivals: Floats,
        requests: Chunk,
        policy: BatchPolicy,
        costs: Costs,
        conduct: Conduct,
        dice: np.random.Generator,
        auto: Linger | None,
    ) -> None:
        self._arrivals: Sequence[float] = arrivals.tolist()
        self._requests = requests
        self._taken = 0
        self._batcher = Batcher({_MODEL: policy}, auto=auto)
        self._auto = auto
        self._costs = costs
        self._conduct = conduct
        self._dice = dice
        self._now = 0.0
        self._in_flight: deque[_Running] = deque()
        self._lane_is_free_at = 0.0
        self.answered: Floats = np.empty(len(requests))
        self.unanswered = len(requests)
        self.batch_rows: list[int] = []
        self.busy = 0.0

    def turn(self) -> None:
        """Take in arrived requests, hand out due groups, answer finished ones. If there are none, wait for the next."""
        taken = self._take_in()
        self._hand_out()
        if not (self._take_back() or taken):
            self._now = max(self._now, self._next_event())

    @property
    def _has_backlog(self) -> bool:
        return self._batcher.backlog >= self._conduct.inflight_batches

    def _take_in(self) -> int:
        start = self._taken
        arrived = 0 if self._has_backlog else bisect_right(self._arrivals, self._now, lo=start) - start
        if arrived == 0:
            return 0
        count = min(arrived, self._conduct.chunk)
        self._taken = start + count
        self._now += self._costs.take(count)
        self._batcher.add(self._requests.take(start, start + count), self._now)
        return count

    def _hand_out(self) -> None:
        while len(self._in_flight) < self._conduct.inflight_batches:
            group = self._batcher.ahead(self._now) if self._in_flight else self._batcher.due(self._now)
            if group is None:
                return
            self._submit(group)

    def _submit(self, group: Group) -> None:
        self._now += self._costs.stack(group.rows)
        began = max(self._now, self._lane_is_free_at) + self._costs.hand_over()
        seconds = self._costs.run(group.rows, self._dice.random())
        self._lane_is_free_at = began + seconds
        self._in_flight.append(_Running(self._lane_is_free_at, seconds, group))
        self.batch_rows.append(group.rows)
        self.busy += seconds

    def _take_back(self) -> int:
        finished: list[_Running] = []
        while self._in_flight and self._in_flight[0].finishes_at <= self._now:
            finished.append(self._in_flight.popleft())
        if finished:
            self._hand_out()  # like the worker's loop, so that the lane does not wait until answers are written
        for running in finished:
            self._answer(running.group)
            if self._auto is not None:
                self._auto.ran(_KIND, running.group.rows, running.seconds, self._now)
                self._auto.look(self._now)
        return len(finished)

    def _answer(self, group: Group) -> None:
        self._now += self._costs.answer(sum(map(len, group.chunks)), group.rows)
        for chunk in group.chunks:
            # If a request was cut into pieces, its last piece brings the answer.
            if chunk.reassembly is None or chunk.reassembly.collect(chunk, Prediction(chunk, ())) is not None:
                self.answered[list(chunk.at)] = self._now
                self.unanswered -= len(chunk)

    def _next_event(self) -> float:
        """Returns the time of the next event. It is called when nothing is left to do now."""
        finishes_at = self._in_flight[0].finishes_at if self._in_flight else inf
        has_room = self._taken < len(self._arrivals) and not self._has_backlog
        arrives_at = self._arrivals[self._taken] if has_room else inf
        due_at = self._batcher.next_due if not self._in_flight else None
        return min(finishes_at, arrives_at, inf if due_at is None else due_at)


Arrivals = Callable[[float, int, int], Floats]  # takes a ceiling (requests a second), requests and a seed


def steady(part: float, ceiling: float, requests: int, seed: int) -> Floats:
    """Makes Poisson arrivals at a part of one replica's maximum rate."""
    arrivals: Floats = np.cumsum(np.random.default_rng(seed).exponential(1.0, requests)) / (part * ceiling)
    return arrivals


def bursts(sizes: Sequence[tuple[float, int]], spread: float, _ceiling: float, requests: int, seed: int) -> Floats:
    """Makes bursts every `PERIOD`. `sizes`: offsets (seconds) and sizes. Each burst is spread evenly over `spread`."""
    dice = np.random.default_rng(seed)
    count = requests // sum(size for _, size in sizes)
    begins = np.cumsum(PERIOD * dice.uniform(0.8, 1.2, count))
    parts = [begin + offset + dice.uniform(0, spread, size) for begin in begins for offset, size in sizes]
    return np.sort(np.concatenate(parts))


LOADS: Mapping[str, Arrivals] = {
    **{f"{part:.0%}": partial(steady, part) for part in (0.01, 0.1, 0.5, 0.9)},
    "32 at once": partial(bursts, [(0.0, 32)], 0.0),
    "32 in 1 ms": partial(bursts, [(0.0, 32)], 0.001),
    "32 in 5 ms": partial(bursts, [(0.0, 32)], 0.005),
    "48 in 3 ms": partial(bursts, [(0.0, 48)], 0.003),
    "32, 3 ms later 32": partial(bursts, [(0.0, 32), (0.003, 32)], 0.0),
}


class Figures(NamedTuple):
    """The figures of one linger under one load: p99 in seconds, requests a second, the lane's seconds for a row."""

    p99: float
    rate: float
    lane: float


def figures(costs: Costs, arrivals: Floats, linger: float | None, seed: int) -> Figures:
    """Simulates one load with a fixed linger in seconds, or with `auto` if `linger` is None."""
    auto = None if linger is not None else Linger(lambda _kind: BATCH)
    policy = BatchPolicy(BATCH, ANY_SIZE, linger or 0.0)
    found = simulate(arrivals, policy, costs, conduct=Conduct(chunk=BATCH), seed=seed, auto=auto)
    judged = found.latencies[len(arrivals) // LEARNING :]
    p99 = float(np.quantile(judged, 0.99, method="higher"))
    return Figures(p99, len(arrivals) / found.seconds, found.busy / len(arrivals))


class Cell(NamedTuple):
    """The figures of one load: for each fixed linger by its milliseconds, and for `auto`."""

    fixed: Mapping[int, Figures]
    auto: Figures

    @property
    def p99_share(self) -> float:
        """The p99 of `auto`, divided by the best fixed linger's."""
        return self.auto.p99 / min(one.p99 for one in self.fixed.values())

    @property
    def rate_share(self) -> float:
        """The requests a second of `auto`, divided by the best fixed linger's."""
        return self.auto.rate / max(one.rate for one in self.fixed.values())


def cell(costs: Costs, arrivals: Arrivals, ceiling: float, requests: int, seeds: Sequence[int]) -> Cell:
    """Simulates all lingers under one load. Each figure is the median over the seeds."""

    def median(linger: float | None) -> Figures:
        runs = [figures(costs, arrivals(ceiling, requests, seed), linger, seed) for seed in seeds]
        return Figures(*map(statistics.median, zip(*runs, strict=True)))

    return Cell({ms: median(ms / MS) for ms in FIXED}, median(None))


def most(costs: Costs) -> float:
    """Returns the requests a second of a replica that always has a backlog."""
    found = simulate(np.zeros(20_000), BatchPolicy(BATCH, ANY_SIZE, 0.0), costs, conduct=Conduct(chunk=BATCH))
    return len(found.latencies) / found.seconds


def section(name: str, costs: Costs, requests: int, seeds: Sequence[int]) -> Section:
    """Makes the table of one model."""
    ceiling = most(costs)
    cells = {load: cell(costs, arrivals, ceiling, requests, seeds) for load, arrivals in LOADS.items()}
    bars = [
        Bar("p99 of auto beside the best fixed linger, at worst", max(c.p99_share for c in cells.values()), most=1.05),
        Bar("requests a second, at worst", min(c.rate_share for c in cells.values()), least=0.95),
    ]
    lines = [
        [load, *(f"{one.p99 * MS:.2f}" for one in (*found.fixed.values(), found.auto)), f"{found.p99_share:.2f}"]
        + [f"{one.lane * 1e6:,.0f}" for one in (found.fixed[0], found.auto)]
        for load, found in cells.items()
    ]
    columns = ("load", *(f"{ms} ms" for ms in FIXED), "auto", "of the best", "lane with 0", "auto")
    return Section(f"Lingers in simulation: {name}", HOW.format(ceiling=ceiling), columns, lines, bars)


def main() -> int:
    """Run the command line. Returns 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description="Lingers in simulation.")
    parser.add_argument("--requests", type=int, default=12_000)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    sections = [section(name, costs, asked.requests, range(asked.seeds)) for name, costs in MODELS.items()]
    for each in sections:
        show(each, console)
    return 0 if all(bar.is_kept for each in sections for bar in each.bars) else 1


if __name__ == "__main__":
    sys.exit(main())

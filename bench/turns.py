"""Measures results per second and CPU per result of contenders that take turns, and makes the table of their ratios.

A run is timed from the first answer in the response topic to the last one, or for so many seconds, by that topic's end
offsets. CPU time is the contender's own between these two looks, so neither figure includes its start. A first round
warms up the broker, whose code is not compiled yet, and is not counted. The first contender changes with the round.
Ratios are medians of ratios within a round.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench.ground import GIVE_UP, LOOK_EVERY, WORKER, Bench, Job, fill, response_topic, there, wait_for
from bench.requests import Request
from bench.running import PEERS, Running, running, why_absent
from bench.tables import Bar

T = TypeVar("T")


class Figure(NamedTuple):
    """The figures of one run: results per second, CPU µs per result, the share of time the lane was busy (or NaN)."""

    rate: float
    cpu: float
    busy: float = math.nan


class Look(NamedTuple):
    """The answers and CPU seconds at one instant."""

    at: float
    answers: int
    cpu: float


def measure(name: str, job: Job, rows: int, seconds: float) -> Figure:
    """Measures one run over all requests, or for so many seconds, into a fresh response topic."""
    with response_topic(job.cluster) as responses, running(name, job, responses) as contender:
        wait_for(job.cluster, responses, 1, contender.why_dead)
        began, lane = time.monotonic(), lane_seconds(contender)
        looks = look_on(contender, lambda: there(job.cluster, responses), rows, seconds)
        lane, ended = lane_seconds(contender) - lane, time.monotonic()
    return between(looks[0], looks[-1])._replace(busy=lane / (ended - began))


def look_on(contender: Running, answers: Callable[[], int], rows: int, seconds: float) -> Sequence[Look]:
    """Looks at a contender until all is answered, or the seconds are over.

    It drops the look that found all done, and looks after the last that found new answers: a large batch takes longer
    than the time between two looks.
    """
    looks = [moved := _look(contender, answers)]
    while True:
        time.sleep(LOOK_EVERY)
        now = _look(contender, answers)
        if now.answers >= rows or now.at - looks[0].at > seconds:
            return looks[: looks.index(moved) + 1]
        moved = now if now.answers > moved.answers else moved
        contender.check()
        assert now.at - moved.at < GIVE_UP, f"{contender.name}: still {now.answers} answers after {GIVE_UP} s"
        looks.append(now)


def between(first: Look, last: Look) -> Figure:
    """Computes the figure between two looks."""
    count = last.answers - first.answers
    assert count > 0, f"no answers between two looks, at {first.answers}: too few requests to time this"
    return Figure(count / (last.at - first.at), (last.cpu - first.cpu) / count * 1e6)


def _look(contender: Running, answers: Callable[[], int]) -> Look:
    count = answers()
    return Look(time.monotonic(), count, contender.cpu_seconds)


def lane_seconds(contender: Running) -> float:
    """Returns the seconds for which the worker's lane ran, by its own metric; NaN for another contender."""
    return math.nan if contender.replica is None else contender.total("inference_seconds_sum")


class Turns:
    """The result of contenders that took turns: a figure for each and each round, and why others are absent."""

    def __init__(self, figures: Mapping[str, Sequence[Figure]], absent: Mapping[str, str]) -> None:
        self.figures = figures
        self.absent = absent

    def ratio(self, name: str, base: str, figure: Callable[[Figure], float] = lambda run: run.rate) -> float:
        """Returns the median of the ratios within a round; NaN if one of the two did not take part."""
        if name not in self.figures or base not in self.figures:
            return math.nan
        pairs = zip(self.figures[name], self.figures[base], strict=True)
        return statistics.median(figure(run) / figure(other) for run, other in pairs)

    def bars(self, least: Mapping[str, float], name: str = WORKER) -> list[Bar]:
        """Returns the bars of `name`: the ratios that its rate must reach next to the others that were asked for."""
        asked = {**self.figures, **self.absent}
        return [
            Bar(f"{name} beside {base}", self.ratio(name, base), bar) for base, bar in least.items() if base in asked
        ]

    def busy(self, name: str) -> float:
        """Returns the share of the time for which a worker's lane was busy."""
        return statistics.median(run.busy for run in self.figures[name]) if name in self.figures else math.nan

    @property
    def columns(self) -> list[str]:
        """The heads of `lines`."""
        return ["contender", "results/s", "min-max", *(f"{each} is" for each in self._workers), "CPU us each"]

    @property
    def lines(self) -> list[list[str]]:
        """One line for each contender: the median, least and most, how much faster each worker is, CPU."""
        shown = [self._line(name) for name in self.figures]
        return shown + [[name, why, *["-"] * (len(self.columns) - 2)] for name, why in self.absent.items()]

    @property
    def _workers(self) -> list[str]:
        """The workers that take the first one's requests."""
        first = next(iter(self.figures), "").partition(", ")
        return [name for name in self.figures if name.startswith(WORKER) and name.partition(", ")[1:] == first[1:]]

    def _line(self, name: str) -> list[str]:
        runs = self.figures[name]
        rates = [run.rate for run in runs]
        ratios = [f"{self.ratio(worker, name):.2f} x" for worker in self._workers]
        cpu = f"{statistics.median(run.cpu for run in runs):.1f}"
        return [name, f"{statistics.median(rates):,.0f}", f"{min(rates):,.0f}-{max(rates):,.0f}", *ratios, cpu]


def compared(bench: Bench, names: Sequence[str], run: Callable[[str], Figure]) -> Turns:
    """Lets every contender that can take part run once a round. A peer that fails is left out; the others go on."""
    absent = {name: why for name in names if (why := why_absent(name))}
    present = [name for name in names if name not in absent]

    def told(name: str) -> Figure:
        figure = Figure(math.nan, math.nan) if name in absent else _tried(name, run, absent)
        bench.tell(f"{name}: {absent.get(name) or f'{figure.rate:,.0f}/s, {figure.cpu:.1f} us of CPU each'}")
        return figure

    for name, why in absent.items():
        bench.tell(f"{name}: {why}")
    found = take_turns(present, bench.asked.rounds, told, bench.tell)
    return Turns({name: runs for name, runs in found.items() if name not in absent}, absent)


def over_requests(
    bench: Bench,
    names: Sequence[str],
    offered: Mapping[str, Sequence[Request]],
    model: Path,
    usual: int,
    **settings: str,
) -> Turns:
    """Compares contenders in batches of 64. `WHO, WHAT` takes the requests `offered` as WHAT, `WHO` those as ""."""
    rows = bench.rows(usual)
    topics = {
        what: fill(bench.cluster, rows, [each.value for each in requests], *(each.headers for each in requests))
        for what, requests in offered.items()
    }

    def run(name: str) -> Figure:
        who, _, what = name.partition(", ")
        return measure(who, Job(bench.cluster, [topics[what]], model, 64, settings), rows, bench.asked.seconds)

    turns = compared(bench, names, run)
    for topic in topics.values():
        bench.cluster.delete_topic(topic)
    return turns


def _tried(name: str, run: Callable[[str], Figure], absent: dict[str, str]) -> Figure:
    try:
        return run(name)
    except AssertionError as error:
        if name not in PEERS:
            raise
        absent[name] = f"failed: {str(error).splitlines()[-1]}"
        return Figure(math.nan, math.nan)


def take_turns(
    names: Sequence[str], rounds: int, run: Callable[[str], T], tell: Callable[[str], None]
) -> dict[str, list[T]]:
    """Runs every name once a round, in an order that rotates. It drops the results of the first round, the warm-up."""
    found: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds + 1):
        tell(f"round {number} of {rounds}" if number else "warming up")
        shift = number % max(1, len(names))
        for name in [*names[shift:], *names[:shift]]:
            found[name].append(run(name))
    return {name: runs[1:] for name, runs in found.items()}

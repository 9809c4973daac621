"""Results per second and CPU per row of several contenders that take turns, and the table of their ratios.

A run is timed from the first answer in the response topic to the last one, or for so many seconds, by that topic's end
offsets; CPU time is the contender's own between the same two looks, so that its start is in neither. A first round that
is not counted warms up the broker. Who begins changes with the round; ratios are medians of ratios within a round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tests.bench.ground import GIVE_UP, LOOK_EVERY, Job, response_topic, there, wait_for
from tests.bench.running import Running, running


class Figure(NamedTuple):
    """One run: results per second, and CPU time per result in microseconds."""

    rate: float
    cpu: float


class Look(NamedTuple):
    """What is there at an instant."""

    at: float
    answers: int
    cpu: float


def measure(name: str, job: Job, rows: int, seconds: float) -> Figure:
    """One run over all the requests, or as many as it answers in so many seconds, into a fresh response topic."""
    with response_topic(job.cluster) as responses, running(name, job, responses) as contender:
        wait_for(job.cluster, responses, 1, contender.why_dead)
        return timed(contender, lambda: there(job.cluster, responses), rows, seconds)


def timed(contender: Running, answers: Callable[[], int], rows: int, seconds: float) -> Figure:
    """From now to the last look before all is answered, or before the seconds are over."""
    first = last = now = _look(contender, answers)
    while now.answers < rows and now.at - first.at < seconds:
        last = now
        assert now.at - first.at < GIVE_UP, f"{contender.name}: {now.answers} of {rows} answers after {GIVE_UP} s"
        if reason := contender.why_dead():
            raise AssertionError(reason)
        time.sleep(LOOK_EVERY)
        now = _look(contender, answers)
    count = last.answers - first.answers
    assert count > 0, f"{contender.name} answered {now.answers} within {LOOK_EVERY} s: too few requests to time it"
    return Figure(count / (last.at - first.at), (last.cpu - first.cpu) / count * 1e6)


def _look(contender: Running, answers: Callable[[], int]) -> Look:
    count = answers()
    return Look(time.monotonic(), count, contender.cpu)


def take_turns(
    names: Sequence[str], rounds: int, run: Callable[[str], Figure], tell: Callable[[str], None]
) -> dict[str, list[Figure]]:
    """Every contender once a round, in an order that rotates; the first round, which warms up, is left out."""
    figures: dict[str, list[Figure]] = {name: [] for name in names}
    for number in range(rounds + 1):
        shift = number % len(names)
        for name in [*names[shift:], *names[:shift]]:
            figure = run(name)
            if number:
                figures[name].append(figure)
                tell(f"round {number} of {rounds}: {name} {figure.rate:,.0f}/s, {figure.cpu:.1f} us of CPU each")
    return figures


def ratio(runs: Sequence[Figure], base: Sequence[Figure]) -> float:
    """The median of the ratios within a round."""
    return statistics.median(run.rate / other.rate for run, other in zip(runs, base, strict=True))


def rows_of(figures: Mapping[str, Sequence[Figure]], bases: Sequence[str]) -> list[list[str]]:
    """A line for each contender: median, least and most, what part of it each base is, CPU."""
    lines = []
    for name, runs in figures.items():
        rates = [run.rate for run in runs]
        ratios = [f"{ratio(figures[base], runs):.2f}" for base in bases]
        cpu = f"{statistics.median(run.cpu for run in runs):.1f}"
        lines.append([name, f"{statistics.median(rates):,.0f}", f"{min(rates):,.0f}-{max(rates):,.0f}", *ratios, cpu])
    return lines

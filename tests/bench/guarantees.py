"""What exactly once costs, beside at least once, on one real broker.

    python -m tests.bench.guarantees                    # 5 rounds, some 15 minutes on two cores
    python -m tests.bench.guarantees --rounds 3 --load small
    python -m tests.bench.guarantees --control          # at least once against itself: what is left is noise

Raw rows of 256 floats (1 KiB, keyed), 4 partitions, batches of 64, one thread per inference, every other setting at its
default. Two loads: a model that costs next to nothing (256→256→16), and one that the CPU is the limit of (three layers
of 2048).

Throughput: the requests lie in the topic before; results per second between the first and the last answer's append, by
the broker's clock, and the worker's own CPU time over the whole. Latency: from sending a request at a steady pace to
reading its answer, committed, by processes apart from the worker; the first seconds are not counted.

Both guarantees take turns within a round; ratios and differences are taken within a round, and their medians shown. The
machine is part of every figure: broker, worker, publisher and reader share its cores.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.bench.measuring.ground import GIVE_UP, WIDTH, Job, fill, response_topic, wait_for
from tests.bench.measuring.pace import Load, answering, append_times, steady
from tests.bench.measuring.running import WORKER, running
from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import Cluster
from tests.models import mlp, save
from worker.settings.sections import COMMIT_INTERVALS_MS
from worker.tools.load.replica import Replica

BASE, DEAR = "at_least_once", "exactly_once"
LEAST_RATIO = 0.9  # of at least once's throughput
STAMPED = {"message.timestamp.type": "LogAppendTime"}
WARM_UP = 3.0  # seconds at the pace that are not counted
MS = 1000.0

T = TypeVar("T")
Pair = tuple[T, T]


class Requests(NamedTuple):
    """A model, how many requests make a run of some seconds, and the paces at which latency is measured (1/s)."""

    hidden: tuple[int, ...]
    rows: int
    paces: tuple[int, ...]


LOADS = {"small": Requests((WIDTH,), 200_000, (500, 3000)), "compute": Requests((2048, 2048, 2048), 40_000, (500,))}


class Speed(NamedTuple):
    """Results per second, CPU per row (µs), and the mean end of a transaction (seconds; NaN without any)."""

    rate: float
    cpu: float
    end: float


class Delay(NamedTuple):
    """Median and tail from sending to reading, and the mean end of a transaction, in milliseconds."""

    p50: float
    p99: float
    end: float


class Bench:
    """One load on one broker. Owns the model's file and the requests that lie ready."""

    def __init__(self, cluster: Cluster, load: Load, requests: Requests, folder: Path) -> None:
        self._cluster = cluster
        self._load = load
        self._rows = requests.rows
        self._model = save(mlp(WIDTH, requests.hidden, 16), folder)
        self._ready = fill(cluster, requests.rows)

    def speed(self, guarantee: str) -> Speed:
        """One run over all the requests, into a fresh response topic."""
        cluster, rows = self._cluster, self._rows
        with (
            response_topic(cluster, config=STAMPED) as responses,
            running(WORKER, self._job(guarantee), responses) as worker,
        ):
            assert worker.replica is not None
            wait_for(cluster, responses, 1, worker.why_dead)
            cpu = worker.usage.cpu_seconds
            worker.replica.wait_until_settled(rows, GIVE_UP)
            cpu, end = worker.usage.cpu_seconds - cpu, mean_end(worker.replica, guarantee)
            times = append_times(cluster.bootstrap_servers, responses)
        assert len(times) == rows, f"{len(times)} answers to {rows} requests"
        return Speed((rows - 1) / (times[-1] - times[0]), cpu / rows * 1e6, end)

    def delay(self, guarantee: str, pace: int, seconds: float) -> Delay:
        """One run at this pace, with fresh topics."""
        with answering(WORKER, self._job(guarantee), self._load) as worker:
            assert worker.replica is not None
            found = self._load.latencies(steady(pace, WARM_UP + seconds), worker.replica.check)
            end = mean_end(worker.replica, guarantee)
        p50, p99 = np.quantile(found[round(WARM_UP * pace) :], (0.5, 0.99)) * MS
        return Delay(float(p50), float(p99), end * MS)

    def _job(self, guarantee: str) -> Job:
        return Job(self._cluster, [self._ready], self._model, 64, {"DELIVERY__GUARANTEE": guarantee})


def mean_end(replica: Replica, guarantee: str) -> float:
    """Seconds that one transaction took to end, by the worker's own count; NaN under at least once."""
    count = replica.total("transaction_end_seconds_count")
    assert (count > 0) == (guarantee == DEAR), f"{count} transactions under {guarantee}"
    return replica.total("transaction_end_seconds_sum") / count if count else math.nan


def take_turns(bench: Bench, load: Requests, sides: Pair[str], rounds: int, seconds: float, console: Console) -> bool:
    """All measurements of one load; shows them. Whether every bar is kept."""
    speeds: list[Pair[Speed]] = []
    delays: dict[int, list[Pair[Delay]]] = {pace: [] for pace in load.paces}
    for side in sides:  # a broker that has just started is slow: its code is not compiled yet
        bench.speed(side)
    for number in range(rounds):
        speeds.append(_both(bench.speed, sides, number))
        for pace, found in delays.items():
            found.append(_both(partial(bench.delay, pace=pace, seconds=seconds), sides, number))
        console.print(
            f"round {number + 1} of {rounds}: {speeds[-1][0].rate:,.0f} and {speeds[-1][1].rate:,.0f}/s", style="dim"
        )
    table = Table("", *(side.replace("_", " ") for side in sides), "second costs", "allowed")
    verdicts = [_add_speed(table, speeds), *(_add_delay(table, pace, found) for pace, found in delays.items())]
    console.print(table)
    return all(verdicts)


def _both(measure: Callable[[str], T], sides: Pair[str], number: int) -> Pair[T]:
    """Measure the two one after the other; every other round begins with the second."""
    if number % 2 == 0:
        return measure(sides[0]), measure(sides[1])
    last = measure(sides[1])
    return measure(sides[0]), last


def _add_speed(table: Table, rounds: Sequence[Pair[Speed]]) -> bool:
    rates = [(base.rate, dear.rate) for base, dear in rounds]
    cpu = [(base.cpu, dear.cpu) for base, dear in rounds]
    ratios = [dear / base for base, dear in rates]
    is_kept = statistics.median(ratios) >= LEAST_RATIO
    _show(table, "results/s", rates, ",.0f", _span(ratios, ".2f"), _verdict(f">= {LEAST_RATIO}", is_kept))
    _show(table, "CPU us/row", cpu, ".1f", _span([dear / base for base, dear in cpu], ".2f"), "")
    _show_ends(table, [dear.end * MS for _, dear in rounds])
    return is_kept


def _add_delay(table: Table, pace: int, rounds: Sequence[Pair[Delay]]) -> bool:
    halves = [(base.p50, dear.p50) for base, dear in rounds]
    tails = [(base.p99, dear.p99) for base, dear in rounds]
    added = [dear - base for base, dear in tails]
    ends = [dear.end for _, dear in rounds]
    most = COMMIT_INTERVALS_MS[DEAR] + 2 * statistics.median(ends)
    is_kept = math.isnan(most) or statistics.median(added) <= most
    table.add_section()
    _show(table, f"p50 at {pace:,}/s, ms", halves, ".1f", _span([dear - base for base, dear in halves], "+.1f"), "")
    _show(table, f"p99 at {pace:,}/s, ms", tails, ".1f", _span(added, "+.1f"), _verdict(f"<= {most:.1f}", is_kept))
    _show_ends(table, ends)
    return is_kept


def _show(table: Table, title: str, rounds: Sequence[Pair[float]], form: str, cost: str, allowed: str) -> None:
    table.add_row(title, *(f"{statistics.median(side):{form}}" for side in zip(*rounds, strict=True)), cost, allowed)


def _show_ends(table: Table, ends: Sequence[float]) -> None:
    if not math.isnan(ends[0]):
        table.add_row("transaction's end, ms", "", f"{statistics.median(ends):.1f}")


def _span(costs: Sequence[float], form: str) -> str:
    """The median of the rounds, and from where to where they go."""
    return f"{statistics.median(costs):{form}} ({min(costs):{form}} to {max(costs):{form}})"


def _verdict(bar: str, is_kept: bool) -> str:  # noqa: FBT001  # a word for it
    return bar if is_kept else f"{bar}: missed"


def main() -> int:
    """The command line. 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description="What exactly once costs beside at least once.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement of latency")
    parser.add_argument("--load", choices=LOADS, action="append", help="both unless given")
    parser.add_argument("--control", action="store_true", help="at least once against itself")
    asked = parser.parse_args()
    sides = BASE, BASE if asked.control else DEAR
    console = Console()
    is_kept = True
    with (
        JvmBroker() as broker,
        tempfile.TemporaryDirectory() as folder,
        Load.of_rows(broker.bootstrap_servers) as load,
    ):
        for name in asked.load or LOADS:
            console.rule(name)
            bench = Bench(Cluster(broker.bootstrap_servers), load, LOADS[name], Path(folder))
            is_kept &= take_turns(bench, LOADS[name], sides, asked.rounds, asked.seconds, console)
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())

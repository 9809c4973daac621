"""What exactly once costs, beside at least once, on one real broker.

python -m tests.bench.guarantees                    # 5 rounds, some 15 minutes on two cores
python -m tests.bench.guarantees --rounds 3 --load small
python -m tests.bench.guarantees --control          # at least once against itself: what is left is noise
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import sub, truediv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from tests.bench.measuring.ground import GIVE_UP, WIDTH, Job, fill, response_topic, wait_for
from tests.bench.measuring.pace import Load, answering, append_times, steady
from tests.bench.measuring.results import Bar, Section, show
from tests.bench.measuring.running import WORKER, running
from tests.bench.measuring.throughput import take_turns
from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import Cluster
from tests.models import mlp, save
from worker.settings.sections import COMMIT_INTERVALS_MS
from worker.tools.load.replica import Replica

BASE, DEAR = "at_least_once", "exactly_once"
LEAST_RATIO = 0.9  # of at least once's throughput
HOW = """Raw rows of 256 floats (1 KiB, keyed), 4 partitions, batches of 64, one thread per inference, every other
setting at its default. The small model costs next to nothing (256→256→16); the CPU is the limit of the other (three
layers of 2048).

Throughput: the requests lie in the topic before; results per second between the first and the last answer's append, by
the broker's clock, and the worker's own CPU time over the whole. Latency: from the instant a request is due at a steady
pace to reading its answer, committed, by processes apart from the worker; the first seconds are not counted.

Ratios and differences are taken within a round. Broker, worker, publisher and reader share the machine's cores."""
STAMPED = {"message.timestamp.type": "LogAppendTime"}
WARM_UP = 3.0  # seconds at the pace that are not counted
MS = 1000.0


class Requests(NamedTuple):
    """A model, how many requests make a run of some seconds, and the paces at which latency is measured (1/s)."""

    hidden: tuple[int, ...]
    rows: int
    paces: tuple[int, ...]


LOADS = {"small": Requests((WIDTH,), 200_000, (500, 3000)), "compute": Requests((2048, 2048, 2048), 40_000, (500,))}


class Speed(NamedTuple):
    """Results per second, CPU per row (µs), and the mean end of a transaction (ms; NaN without any)."""

    rate: float
    cpu: float
    end: float


class Delay(NamedTuple):
    """Median and tail from due to read, and the mean end of a transaction, in milliseconds."""

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
        return Speed((rows - 1) / (times[-1] - times[0]), cpu / rows * 1e6, end * MS)

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


def measured(name: str, bench: Bench, sides: Mapping[str, str], rounds: int, seconds: float) -> Section:
    """Everything of one load, by the sides that take turns: their names, and each one's guarantee."""
    tell = partial(print, flush=True)
    speeds = Rounds(take_turns(list(sides), rounds, lambda side: bench.speed(sides[side]), tell))
    ratios = speeds.costs("rate", truediv)
    lines = [
        speeds.line("results/s", "rate", ",.0f", truediv),
        speeds.line("CPU us/row", "cpu", ".1f", truediv),
        speeds.line("transaction's end, ms", "end", ".1f"),
    ]
    bars = [Bar("results/s, the second beside the first", statistics.median(ratios), least=LEAST_RATIO)]
    for pace in LOADS[name].paces:
        run = partial(bench.delay, pace=pace, seconds=seconds)
        delays = Rounds(take_turns(list(sides), rounds, _of(run, sides), tell))
        lines += [
            delays.line(f"p50 at {pace:,}/s, ms", "p50", ".1f", sub),
            delays.line(f"p99 at {pace:,}/s, ms", "p99", ".1f", sub),
            delays.line("transaction's end, ms", "end", ".1f"),
        ]
        if not math.isnan(end := delays.medians("end")[1]):
            added = statistics.median(delays.costs("p99", sub))
            bars.append(Bar(f"p99 added at {pace:,}/s, ms", added, most=COMMIT_INTERVALS_MS[DEAR] + 2 * end))
    return Section(f"Guarantees, {name} model", HOW, ("", *sides, "the second costs (least to most)"), lines, bars)


def _of(run: Callable[[str], Delay], sides: Mapping[str, str]) -> Callable[[str], Delay]:
    return lambda side: run(sides[side])


class Rounds:
    """What two sides came to in each round: `Speed` or `Delay`, whose fields are asked for by name."""

    def __init__(self, found: Mapping[str, Sequence[Speed | Delay]]) -> None:
        self._sides = list(found.values())

    def costs(self, figure: str, cost: Callable[[float, float], float]) -> list[float]:
        """Of the second beside the first, within each round."""
        first, second = self._columns(figure)
        return [cost(dear, base) for base, dear in zip(first, second, strict=True)]

    def medians(self, figure: str) -> list[float]:
        """Of each side."""
        return [statistics.median(column) for column in self._columns(figure)]

    def line(
        self, title: str, figure: str, form: str, cost: Callable[[float, float], float] | None = None
    ) -> list[str]:
        """The medians, and what the second costs: the median of the rounds, the least and the most."""
        sides = ["" if math.isnan(median) else f"{median:{form}}" for median in self.medians(figure)]
        if cost is None:
            return [title, *sides, ""]
        costs, form = self.costs(figure, cost), ".2f" if cost is truediv else "+.1f"
        return [title, *sides, f"{statistics.median(costs):{form}} ({min(costs):{form}} to {max(costs):{form}})"]

    def _columns(self, figure: str) -> list[list[float]]:
        return [[getattr(run, figure) for run in runs] for runs in self._sides]


def main() -> int:
    """The command line. 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description="What exactly once costs beside at least once.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement of latency")
    parser.add_argument("--load", choices=LOADS, action="append", help="both unless given")
    parser.add_argument("--control", action="store_true", help="at least once against itself")
    asked = parser.parse_args()
    sides = {"at least once": BASE, **({"the same again": BASE} if asked.control else {"exactly once": DEAR})}
    console = Console()
    is_kept = True
    with (
        JvmBroker() as broker,
        tempfile.TemporaryDirectory() as folder,
        Load.of_rows(broker.bootstrap_servers) as load,
    ):
        for name in asked.load or LOADS:
            bench = Bench(Cluster(broker.bootstrap_servers), load, LOADS[name], Path(folder))
            section = measured(name, bench, sides, asked.rounds, asked.seconds)
            show(section, console)
            is_kept &= all(bar.is_kept for bar in section.bars)
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())

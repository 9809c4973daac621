"""How fast one worker process is, beside a loop written by hand and an unsafe pass-through, on one real broker.

    python -m tests.bench.compare                       # throughput: 5 rounds, a table with ratios
    python -m tests.bench.compare --rounds 3 --rows 100000
    python -m tests.bench.compare --memory              # peak memory over a backlog of a million requests

Throughput: raw rows of 256 floats (1 KiB, keyed), an MLP 256→256→16, 4 partitions, batches of 64, one thread per
inference. The contenders take turns within a round, so that a busy machine is busy for all of them; the ratios are
medians of ratios within a round. A run is timed from the first answer in the response topic to the last, by that
topic's end offsets; CPU time is the contender's own between the same two moments. The requests lie in the topic
before, and a first round that is not counted warms the broker up.

Memory: the same requests, a model that is slower than they come; the peak resident memory over some minutes.

The machine is part of every figure: broker, contender and clock share its cores. Compare ratios, not rows/s.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from confluent_kafka import KafkaException
from rich.console import Console
from rich.table import Table

from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import Cluster, Sent, fresh
from tests.kafka.replica import Replica, cpu_seconds
from tests.models import mlp, save

WIDTH = 256
PARTITIONS = 4
BATCH = 64
LOOK_EVERY = 0.05  # seconds; a look costs the broker about a millisecond
GIVE_UP = 120.0  # seconds without the last answer
HEADERS = [("content-type", b"application/octet-stream")]
CONTENDERS = ("worker", "hand_loop", "pass_through")
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Figure:
    """One run: results per second, and the contender's CPU time per row in microseconds."""

    rate: float
    cpu: float


def fill(cluster: Cluster, rows: int) -> str:
    """A topic with so many keyed requests, spread evenly over its partitions."""
    topic = cluster.create_topic("bench-requests", partitions=PARTITIONS)
    values = [value.tobytes() for value in np.random.default_rng(3).standard_normal((1000, WIDTH), dtype=np.float32)]
    requests = (Sent(b"key-%d" % (n % 997), values[n % 1000], HEADERS, n % PARTITIONS) for n in range(rows))
    cluster.produce(topic, requests, {"linger.ms": "20", "batch.size": "500000"})
    return topic


def settings(cluster: Cluster, requests: str, responses: str, model: Path) -> dict[str, str]:
    """The worker's, for this comparison."""
    return {
        "KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "KAFKA__REQUEST_TOPICS": requests,
        "KAFKA__RESPONSE_TOPIC": responses,
        "KAFKA__GROUP_ID": fresh("bench"),
        "MODEL__PATH": str(model),
        "MODEL__DEVICE": "cpu",
        "BATCHING__MAX_BATCH_SIZE": str(BATCH),
    }


@contextmanager
def contender(name: str, cluster: Cluster, requests: str, responses: str, model: Path) -> Iterator[int]:
    """The process id of a running contender."""
    if name == "worker":
        with Replica(settings(cluster, requests, responses, model), model.parent, fresh("bench")) as replica:
            yield replica.wait_until_ready().pid
        return
    command = [name, cluster.bootstrap_servers, requests, responses, fresh("bench"), str(model)]
    program = [sys.executable, "-m", "tests.bench.contenders", *command]
    with (model.parent / f"{name}.log").open("wb") as log, subprocess.Popen(program, stderr=log) as process:  # noqa: S603  # ours
        try:
            yield process.pid
        finally:
            process.kill()


def measure(name: str, cluster: Cluster, requests: str, rows: int, model: Path) -> Figure:
    """One run over all the requests, into a fresh response topic."""
    responses = cluster.create_topic("bench-responses", partitions=PARTITIONS)
    with contender(name, cluster, requests, responses, model) as pid:
        first = wait_for(cluster, responses, 1)
        began, cpu = time.monotonic(), cpu_seconds(pid)
        last = wait_for(cluster, responses, rows)
        seconds, cpu = time.monotonic() - began, cpu_seconds(pid) - cpu
    cluster.delete_topic(responses)
    return Figure((last - first) / seconds, cpu / (last - first) * 1e6)


def wait_for(cluster: Cluster, topic: str, count: int) -> int:
    """Until there are so many records; how many there are."""
    deadline = time.monotonic() + GIVE_UP
    there = 0
    while there < count:
        assert time.monotonic() < deadline, f"{there} of {count} answers after {GIVE_UP} s"
        time.sleep(LOOK_EVERY)
        with suppress(KafkaException):  # a fresh topic has no leader yet
            there = sum(cluster.end_offsets(topic).values())
    return there


def compare(cluster: Cluster, model: Path, rows: int, rounds: int, console: Console) -> None:
    """Take turns, then show the medians."""
    requests = fill(cluster, rows)
    for name in CONTENDERS:  # a broker that has just started is slow: its code is not compiled yet
        measure(name, cluster, requests, rows, model)
    figures: dict[str, list[Figure]] = {name: [] for name in CONTENDERS}
    for number in range(rounds):
        for name in CONTENDERS[number % 3 :] + CONTENDERS[: number % 3]:
            figures[name].append(measure(name, cluster, requests, rows, model))
            console.print(f"round {number + 1}: {name} {figures[name][-1].rate:,.0f}/s", style="dim")
    console.print(table(figures))


def table(figures: Mapping[str, list[Figure]]) -> Table:
    """Medians over the rounds; each ratio is the median of the ratios within a round."""
    shown = Table("contender", "results/s", "min-max", "x hand loop", "x pass-through", "CPU us/row")
    for name, runs in figures.items():
        rates = [run.rate for run in runs]
        shown.add_row(
            name,
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f}-{max(rates):,.0f}",
            f"{_ratio(runs, figures['hand_loop']):.2f}",
            f"{_ratio(runs, figures['pass_through']):.2f}",
            f"{statistics.median(run.cpu for run in runs):.1f}",
        )
    return shown


def _ratio(runs: list[Figure], floor: list[Figure]) -> float:
    return statistics.median(run.rate / base.rate for run, base in zip(runs, floor, strict=True))


def memory(cluster: Cluster, folder: Path, rows: int, seconds: float, console: Console) -> None:
    """Peak memory of a worker whose model is slower than its input, over a backlog."""
    model = save(mlp(WIDTH, (2048, 2048, 2048), 16), folder, "slow")
    responses = cluster.create_topic("bench-responses", partitions=PARTITIONS)
    idle = cluster.create_topic("bench-idle", partitions=PARTITIONS)
    with Replica(settings(cluster, idle, responses, model), folder, "idle") as replica:
        replica.wait_until_ready()
        time.sleep(1.0)
        base = replica.peak_rss
    requests = fill(cluster, rows)
    with Replica(settings(cluster, requests, responses, model), folder, "backlog") as replica:
        replica.wait_until_ready()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(seconds / 6)
            answers = sum(cluster.end_offsets(responses).values())
            console.print(f"{answers:,} answers of {rows:,}: peak {replica.peak_rss / MIB:,.0f} MiB", style="dim")
        peak = replica.peak_rss
    console.print(f"peak {peak / MIB:,.0f} MiB with {rows:,} requests waiting; {base / MIB:,.0f} MiB idle")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare one worker process with a loop written by hand.")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", action="store_true", help="peak memory over a backlog instead")
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    console = Console()
    with JvmBroker() as broker, tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(broker.bootstrap_servers)
        if asked.memory:
            memory(cluster, Path(folder), asked.backlog, asked.seconds, console)
        else:
            compare(cluster, save(mlp(WIDTH, (WIDTH,), 16), Path(folder)), asked.rows, asked.rounds, console)


if __name__ == "__main__":
    main()

"""The worker beside loops written by hand and beside other people's frameworks, on one real broker, in one run.

    python -m tests.bench.suite --case raw --rounds 5 --batch 64 --only worker,floor,hand_loop,pass_through
    python -m tests.bench.suite --case raw --root ../before      # a second worker, of another checkout

Contenders take turns within a round, so that a busy machine is busy for all of them. The machine is part of every
figure: broker, contender and clock share its cores. Compare ratios, not rows/s.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.ground import WIDTH, Job, fill
from tests.bench.running import WORKER
from tests.bench.throughput import measure, rows_of, take_turns
from tests.kafka.broker import any_broker
from tests.kafka.cluster import Cluster
from tests.models import mlp, save

ALL = (WORKER, "floor", "hand_loop", "one_by_one", "pass_through")


def raw(cluster: Cluster, folder: Path, asked: argparse.Namespace, console: Console) -> None:
    """Raw rows of 256 floats, a model that costs next to nothing."""
    model = save(mlp(WIDTH, (WIDTH,), 16), folder)
    requests = fill(cluster, asked.rows)
    names = [name for name in ALL if name in asked.only] + [f"{WORKER}@{root}" for root in asked.root]
    workers = [name for name in names if name.startswith(WORKER)]
    for batch in asked.batch:
        run = partial(measure, job=Job(cluster, [requests], model, batch), rows=asked.rows, seconds=asked.seconds)
        figures = take_turns(names, asked.rounds, run, lambda line: console.print(line, style="dim"))
        columns = ("contender", "results/s", "min-max", *(f"{worker} is" for worker in workers), "CPU us/row")
        shown = Table(*columns, title=f"raw rows, small model, batch {batch}; medians of {asked.rounds} rounds")
        for line in rows_of(figures, workers):
            shown.add_row(*line)
        console.print(shown)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="The worker beside other loops.")
    parser.add_argument("--case", choices=["raw"], default="raw")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--seconds", type=float, default=6.0, help="a run is timed for no longer")
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(ALL))
    parser.add_argument("--root", action="append", default=[], help="another checkout, whose worker runs as well")
    asked = parser.parse_args()
    asked.batch = asked.batch or [64, 256]
    broker = any_broker()
    try:
        with tempfile.TemporaryDirectory() as folder:
            raw(Cluster(broker.bootstrap_servers), Path(folder), asked, Console())
    finally:
        broker.remove()


if __name__ == "__main__":
    main()

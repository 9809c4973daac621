"""What open live pages cost a worker: rows a second and CPU time a row without any and with ten, in turns.

    python -m tests.bench.pages                        # 5 rounds of 400,000 rows of 1 KiB, batches of 64
    python -m tests.bench.pages --rounds 9 --pages 100

A page is what asks `/status` every two seconds, in a process of its own: a browser draws on its reader's machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console

from tests.bench.measuring.bench import OUTPUTS, SMALL
from tests.bench.measuring.ground import WIDTH, Job, fill, response_topic, there, wait_for
from tests.bench.measuring.running import WORKER, running
from tests.bench.measuring.throughput import Figure, between, look_on
from tests.kafka.broker import any_broker
from tests.kafka.cluster import Cluster
from tests.models import mlp, save

EVERY = 2.0  # seconds, as `page.js` has it


def _ask(url: str, pages: int) -> None:
    def page() -> None:
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{url}/status", timeout=5) as answer:  # noqa: S310  # ours
                answer.read()
            time.sleep(EVERY)

    for number in range(pages):
        threading.Timer(EVERY * number / pages, page).start()


@contextmanager
def pages_open(url: str, pages: int) -> Iterator[None]:
    """So many, spread over the time between two questions."""
    process = multiprocessing.get_context("spawn").Process(target=_ask, args=(url, pages), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def measured(job: Job, rows: int, pages: int) -> Figure:
    """One run over all the requests."""
    with response_topic(job.cluster) as responses, running(WORKER, job, responses) as contender:
        assert contender.replica is not None
        with pages_open(contender.replica.url, pages):
            wait_for(job.cluster, responses, 1, contender.why_dead)
            looks = look_on(contender, lambda: there(job.cluster, responses), rows, 60.0)
    return between(looks[0], looks[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pages", type=int, default=10)
    asked = parser.parse_args()
    broker = any_broker()
    try:
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(broker.bootstrap_servers)
            model = save(mlp(WIDTH, SMALL, OUTPUTS), Path(folder), "mlp")
            job = Job(cluster, [fill(cluster, asked.rows)], model, 64)
            measured(job, asked.rows, 0)  # the broker's code is compiled then
            turns = [[measured(job, asked.rows, n) for n in _order(at, asked.pages)] for at in range(asked.rounds)]
    finally:
        broker.remove()
    _tell([_without_first(turn, at) for at, turn in enumerate(turns)], asked.pages)


def _order(at: int, pages: int) -> tuple[int, int]:
    """Who begins changes with the round."""
    return (0, pages) if at % 2 == 0 else (pages, 0)


def _without_first(turn: list[Figure], at: int) -> list[Figure]:
    """Without pages first."""
    return turn if at % 2 == 0 else turn[::-1]


def _tell(turns: list[list[Figure]], pages: int) -> None:
    console = Console()
    for name, figures in zip(("no page", f"{pages} pages"), zip(*turns, strict=True), strict=True):
        rate, cpu = (statistics.median(values) for values in zip(*[(f.rate, f.cpu) for f in figures], strict=True))
        console.print(f"{name}: {rate:,.0f} rows/s, {cpu:.2f} µs of CPU a row")
    rates = statistics.median(seen.rate / without.rate for without, seen in turns)
    costs = statistics.median(seen.cpu / without.cpu for without, seen in turns)
    console.print(f"medians of the rounds' ratios: {rates:.3f} of the rate, {costs:.3f} of the CPU time")


if __name__ == "__main__":
    main()

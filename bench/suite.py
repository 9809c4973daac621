"""The suite compares the worker with loops written by hand and other people's frameworks, on one broker, in one run.

    make bench                                                   # all cases, into bench/RESULTS.md
    make bench BENCH="--case raw --write"                        # one case; the others' figures are kept
    python -m bench.suite --case raw --batch 64 --only worker,floor,hand_loop
    python -m bench.suite --case raw --root ../before      # another checkout's worker next to ours
    python -m bench.suite --rounds 1 --rows 50000 --seconds 3   # short: shows that it runs, not how fast

Contenders take turns within a round, so that a busy machine is busy for all of them. The machine is part of every
figure: broker, contender and clock share its cores. Compare ratios, not rows/s.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rich.console import Console

from bench.cases import (
    columns,
    compute,
    deadlines,
    documents,
    formats,
    fraud,
    guarantees,
    latency,
    pictures,
    raw,
    start,
    state,
    wide,
)
from bench.ground import Asked, Bench
from bench.tables import RESULTS, Section, show, write
from tests.kafka.broker import ADDRESS_VARIABLE, VERSION, Broker, GivenBroker, JvmBroker
from tests.kafka.cluster import Cluster

CASES: dict[str, Callable[[Bench], Iterator[Section]]] = {
    "raw": raw.measured,
    "compute": compute.measured,
    "formats": formats.measured,
    "texts": columns.texts,
    "hostile": columns.hostile,
    "tables": columns.tables,
    "latency": latency.measured,
    "deadlines": deadlines.measured,
    "guarantees": guarantees.measured,
    "state": state.measured,
    "fraud": fraud.measured,
    "documents": documents.measured,
    "pictures": pictures.measured,
    "wide": wide.measured,
    "start": start.measured,
}


def main() -> int:
    """Run the command line. Returns 1 if a bar is missed."""
    asked = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 120)
    load = os.getloadavg()[0]
    broker, said = _broker()
    measured: dict[str, list[Section]] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            order = Asked(asked.rounds, asked.rows, asked.seconds, asked.batch, asked.only, asked.root)
            tell = partial(console.print, style="dim", highlight=False, markup=False)
            bench = Bench(Cluster(broker.bootstrap_servers), Path(folder), order, tell)
            for name in asked.case or CASES:
                for section in CASES[name](bench):
                    show(section, console)
                    measured.setdefault(name, []).append(section)
    finally:
        broker.remove()
        if asked.write:  # also after a case has failed
            write(measured, CASES, asked.rounds, said, load)
            console.print(f"written to {RESULTS}")
    missed = [bar for sections in measured.values() for section in sections for bar in section.bars if not bar.is_kept]
    console.print(f"{len(missed)} bars missed" if missed else "every bar kept")
    return 1 if missed else 0


def _broker() -> tuple[Broker, str]:
    """Returns the given broker, or starts one for us alone; and its name in words."""
    if os.environ.get(ADDRESS_VARIABLE):
        return GivenBroker(), f"the Kafka that {ADDRESS_VARIABLE} names"
    return JvmBroker().start(), f"Apache Kafka {VERSION} (JVM, one node, loopback)"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The worker next to other loops, on one real broker.")
    parser.add_argument("--case", choices=CASES, action="append", help="all unless given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, help="requests of a run; each case has its own number unless given")
    parser.add_argument("--seconds", type=float, default=6.0, help="a run is timed for no longer")
    parser.add_argument("--batch", type=int, action="append", help="64 and 256 unless given, or what a case needs")
    parser.add_argument("--only", type=lambda text: text.split(","), help="these contenders, comma-separated")
    parser.add_argument("--root", action="append", default=[], help="another checkout, whose worker runs as well")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""The published benchmark Crayfish on our worker, by its rules, on one real broker: its figures beside ours.

    python -m tests.bench.crayfish                                     # all of it
    python -m tests.bench.crayfish --network FFNN --rounds 1
    python -m tests.bench.crayfish --rounds 1 --seconds 2 --count 3000   # short: whether it runs, not how fast
    python -m tests.bench.crayfish --markdown figures.md               # and write the tables there

The machine is part of every figure. Here broker, replicas and load share its cores; there each had a machine.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console

from tests.bench.crayfish.events import FFNN, FORMS, NETWORKS, ON_GPU, Network
from tests.bench.crayfish.published import LATENCIES
from tests.bench.crayfish.serving import LOW, PARTS, Side, serving
from tests.bench.crayfish.tables import Found, Rounds, short, tables
from tests.bench.measuring.results import markdown, processor, show
from tests.kafka.broker import any_broker
from tests.kafka.cluster import Cluster
from tests.models import save


def main() -> None:
    """The command line."""
    asked = _arguments()
    said = _machine(os.getloadavg()[0], asked.rounds)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(said)
    broker = any_broker()
    try:
        with tempfile.TemporaryDirectory() as folder:
            of_device = NETWORKS if asked.device == "cpu" else ON_GPU
            networks = [each for each in of_device if asked.network in (None, each.name)]
            models = {each: save(each.build(), Path(folder), each.name) for each in networks}
            rounds = _rounds(Cluster(broker.bootstrap_servers), models, asked, console)
    finally:
        broker.remove()
    sections = tables(rounds)
    for section in sections:
        show(section, console)
    if asked.markdown:
        asked.markdown.write_text("\n".join(line for each in sections for line in markdown(each, f"_{said}_")))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The published benchmark Crayfish on our worker.")
    parser.add_argument("--network", choices=[each.name for each in NETWORKS], help="both unless given")
    parser.add_argument("--form", choices=FORMS, help="both unless given")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--throughput", action="store_true", help="leave the delays out, which take minutes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of a closed loop, and of a load at a part of it")
    parser.add_argument("--count", type=int, help="events of an open loop at most; each network has its own number")
    parser.add_argument("--markdown", type=Path, help="write the tables there, too")
    return parser.parse_args()


def _machine(load: float, rounds: int) -> str:
    names = ("confluent-kafka", "onnxruntime-gpu", "onnxruntime", "orjson")
    installed = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    versions = [f"{name} {installed[name]}" for name in names if name in installed]
    when = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {rounds} rounds"
    cores = f"{os.cpu_count()} cores ({processor()}), load average {load:.1f} before"
    return f"{when}; {cores}; Python {platform.python_version()}, {', '.join(versions)}"


def sides(networks: Iterable[Network], forms: Iterable[str] = FORMS, device: str = "cpu") -> list[Side]:
    """All runs of a round."""
    found = []
    for network in networks:
        for form in forms:
            found += [Side(network, form, replicas, network.batch, device=device) for replicas in (1, 2)]
            found.append(Side(network, form, device=device))
            if network is FFNN:
                found += [Side(network, form, 1, network.batch, images, device) for images in LATENCIES]
    return found


def _rounds(cluster: Cluster, models: Mapping[Network, Path], asked: argparse.Namespace, console: Console) -> Rounds:
    """Every side once a round, in an order that rotates. A short run before is not counted: it warms up the broker."""
    wanted = sides(models, FORMS if asked.form is None else [asked.form], asked.device)
    if asked.throughput:
        wanted = [side for side in wanted if side.images == 1]
    first = [side for side in wanted if side.batch == 1][:1]
    found: dict[Side, list[Found]] = {side: [] for side in wanted}
    for at in range(asked.rounds + 1):
        for side in [*wanted[at:], *wanted[:at]] if at else first:
            count = min(asked.count or side.network.count, side.network.count)
            run = _measured(cluster, models[side.network], side, asked, count)
            console.print(f"round {at}: {side.name}: {_told(run)}", style="dim", highlight=False)
            found[side] += [run] if at else []
    return found


def _measured(cluster: Cluster, model: Path, side: Side, asked: argparse.Namespace, count: int) -> Found:
    """One run. Delays are those of one replica that batches."""
    with serving(cluster, model, side) as served:
        if side.images > 1:
            return Found(None, {"low": served.delays(LOW, 0.0)})
        throughput = served.throughput(asked.seconds, count)
        if asked.throughput or side.replicas > 1 or side.batch == 1:
            return Found(throughput, {})
        rates = {"low": LOW} | {f"{part:.0%}": part * throughput.closed for part in PARTS}
        return Found(throughput, {load: served.delays(rate, asked.seconds) for load, rate in rates.items()})


def _told(run: Found) -> str:
    said = [f"{short(run.throughput.closed)}/s, {short(run.throughput.judged)}/s"] if run.throughput else []
    return ", ".join([*said, *(f"{load} {each.p50:.1f} ms" for load, each in run.delays.items())])


if __name__ == "__main__":
    main()

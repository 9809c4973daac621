"""What the runs come to: tables of medians, beside what Crayfish published. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.bench.crayfish.published import LATENCIES, SOURCE, THROUGHPUTS
from tests.bench.crayfish.rules import PARTITIONS, Judged, middle
from tests.bench.crayfish.serving import LOW, Side, Throughput
from tests.bench.measuring.results import Section

HOW = f"""Events of one image, {PARTITIONS} partitions on either side, one thread an inference, every other setting of
the worker at its default; "together" is BATCHING__MAX_BATCH_SIZE. Closed loop: many events always outstanding; answers,
and CPU time of all replicas for each. Open loop: events at Crayfish's rate, or what the load manages of it, and the
throughput by Crayfish's rule (rules.py). Medians of the rounds."""
HOW_DELAYS = """From the instant at which an event is due to the append of its answer, by the broker's clock, without
the first quarter; the load's own linger of 2 ms is in it. The percentages are of that run's closed loop. One replica.
"""
HOW_IMAGES = f"""The same for events of more images, {LOW:g} events a second. Crayfish's: one event every three seconds;
the mean alone is published."""
HOW_PUBLISHED = f"""Events a second by Crayfish's rule; its own are outputs of results-analysis/aggregates-final.ipynb
in {SOURCE}."""
MACHINES = """Crayfish ran Kafka, producer and stream processor on a machine each; here a broker, the replicas and the
load share the cores of one: a ratio of two rows from different machines says little."""
OWN_JSON = """Crayfish's JSON holds the numbers as one string, and its answers hold the whole event once more; ours are
requests of the Open Inference Protocol, about as long, and answers with the outputs alone."""
TOGETHER = """Crayfish's systems run one inference for each event: "one by one" is what compares with them, the rest is
what batches bring."""


class Found(NamedTuple):
    """One run: its throughput (None: not asked for), and its delays by load."""

    throughput: Throughput | None
    delays: Mapping[str, Judged]


Rounds = Mapping[Side, Sequence[Found]]


def tables(rounds: Rounds) -> list[Section]:
    """All that have something to say."""
    return [each for each in (throughputs(rounds), delays(rounds), of_images(rounds), beside(rounds)) if each.lines]


def throughputs(rounds: Rounds) -> Section:
    """What comes through."""
    lines = []
    for side, runs in _with_throughput(rounds).items():
        closed = [run.closed for run in runs]
        half = Throughput(*(statistics.median(column) for column in zip(*runs, strict=True)))
        between = f"{short(min(closed))}-{short(max(closed))}"
        lines.append([side.name, short(half.closed), between, f"{half.cpu:,.1f}", *map(short, half[2:])])
    columns = ("", "closed loop/s", "min-max", "CPU us each", "open loop asked/s", "by Crayfish's rule/s")
    return Section("Crayfish: throughput", HOW, columns, lines)


def delays(rounds: Rounds) -> Section:
    """Of events of one image."""
    lines = [
        [f"{side.network.name}, {side.form}", load, *_ms(middle([each.delays[load] for each in found]))]
        for side, found in rounds.items()
        if side.images == 1
        for load in found[0].delays
    ]
    columns = ("", "load", "answers/s", "mean ms", "p50", "p99")
    return Section(f"Crayfish: latency, low is {LOW:g}/s", HOW_DELAYS, columns, lines)


def of_images(rounds: Rounds) -> Section:
    """Of events of more images, beside what is published."""
    lines = []
    for side, found in rounds.items():
        if theirs := LATENCIES.get(side.images):
            ours = _ms(middle([each.delays["low"] for each in found]))[1:]
            lines.append([f"{side.form}, {side.images}", *ours, f"{theirs.flink:.1f}", f"{theirs.kafka_streams:.1f}"])
    columns = ("form, images", "mean ms", "p50", "p99", "Flink + ONNX, mean", "Kafka Streams + ONNX, mean")
    return Section("Crayfish: latency of events of many images, FFNN", HOW_IMAGES, columns, lines, notes=[MACHINES])


def beside(rounds: Rounds) -> Section:
    """Ours by Crayfish's rule, and what is published of the same networks."""
    networks = {side.network.name for side in rounds}
    lines = [
        [side.network.name, f"this worker: {side.how}", str(side.replicas), short(_middle(runs)), ""]
        for side, runs in _with_throughput(rounds).items()
    ]
    published = [each for each in THROUGHPUTS if each.network in networks]
    lines += [[each.network, each.system, str(each.copies), short(each.rate), each.stands] for each in published]
    columns = ("", "system", "copies of the model", "events/s", "stands under")
    notes = [MACHINES, TOGETHER, OWN_JSON]
    title = "Crayfish: what it published, and ours"
    return Section(title, HOW_PUBLISHED, columns, sorted(lines, key=lambda line: line[0]), notes=notes)


def _middle(runs: Sequence[Throughput]) -> float:
    return statistics.median(run.judged for run in runs)


def _with_throughput(rounds: Rounds) -> dict[Side, list[Throughput]]:
    found = {side: [each.throughput for each in runs if each.throughput] for side, runs in rounds.items()}
    return {side: runs for side, runs in found.items() if runs}


def _ms(found: Judged) -> list[str]:
    return [short(found.rate), *(f"{each:.1f}" for each in found[1:])]


def short(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

"""Whether a row costs the same however many there are, and from however many partitions and topics they come."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.bench.measuring.bench import SMALL, Bench
from tests.bench.measuring.ground import PARTITIONS, Job, fill, response_topic, there, wait_for
from tests.bench.measuring.results import Bar, Section
from tests.bench.measuring.running import WORKER, running
from tests.bench.measuring.throughput import Look, between, look_on, take_turns

BATCH = 64
MARKS = (100_000, 300_000, 1_000_000, 3_000_000)
WIDTHS = {"1 partition": (1, 1), "4 partitions": (1, 4), "16 partitions": (1, 16), "64 partitions": (1, 64)}
WIDTHS |= {"2 topics of 4": (2, 4), "4 topics of 4": (4, 4), "8 topics of 4": (8, 4)}
USUAL = "4 partitions"
# Answers of a start: with the first ones everything is made that is made once, 0.1 s of a processor in some runs.
WARM = 10_000
MOST = 3600.0  # seconds
MIB = 1024 * 1024
HOW = f"""Raw rows of 256 float32, an MLP 256→256→16, batches of 64: the worker alone. CPU time from the first {WARM:,}
answers, which are its start, to that row; the most memory that the process held until then. A run before is not
counted: while the broker's code is compiled beside it, on cores that share their units, the same row costs more."""
HOW_WIDE = """The same with {:,} requests, from one topic with so many partitions, and from so many topics."""


class Cost(NamedTuple):
    """CPU µs per row, and the most memory held, bytes."""

    cpu: float
    memory: int


def measured(bench: Bench) -> Iterator[Section]:
    """By the number of rows, and by where they come from."""
    yield by_rows(bench)
    yield by_places(bench)


def by_rows(bench: Bench) -> Section:
    """One backlog, looked at on the way."""
    marks = [mark for mark in MARKS if mark <= bench.rows(MARKS[-1])]
    requests = fill(bench.cluster, marks[-1])
    job = Job(bench.cluster, [requests], bench.model(SMALL), BATCH)
    found = take_turns([WORKER], bench.asked.rounds, lambda _: _along(bench, job, marks), bench.tell)[WORKER]
    bench.cluster.delete_topic(requests)
    costs = {f"{mark:,} rows": [run[at] for run in found] for at, mark in enumerate(marks)}
    grown = statistics.median(run[-1].memory / run[0].memory for run in found)
    memory = Bar("the most memory held after the last row, beside that after the first mark", grown, most=1.1)
    section = _section("Cost by the number of rows", HOW, costs, f"{marks[0]:,} rows")
    return replace(section, bars=[*section.bars, memory])


def by_places(bench: Bench) -> Section:
    """As many rows from more partitions and topics."""
    rows = bench.rows(600_000)
    jobs = {}
    for name, (topics, partitions) in WIDTHS.items():
        places = [fill(bench.cluster, rows // topics, partitions=partitions) for _ in range(topics)]
        jobs[name] = Job(bench.cluster, places, bench.model(SMALL), BATCH)
    found = take_turns(list(jobs), bench.asked.rounds, lambda name: _along(bench, jobs[name], [rows])[0], bench.tell)
    for topic in {topic for job in jobs.values() for topic in job.requests}:
        bench.cluster.delete_topic(topic)
    return _section("Cost by partitions and topics", HOW_WIDE.format(rows), found, USUAL)


def _along(bench: Bench, job: Job, marks: Sequence[int]) -> list[Cost]:
    """One run; what it had cost at each mark."""
    cluster = bench.cluster
    costs: list[Cost] = []
    with response_topic(cluster, partitions=PARTITIONS) as responses, running(WORKER, job, responses) as contender:
        assert contender.replica is not None, "only the worker is measured here"
        wait_for(cluster, responses, WARM)
        first: Look | None = None
        for mark in marks:
            looks = look_on(contender, lambda: there(cluster, responses), mark, MOST)
            first = first or looks[0]
            costs.append(Cost(between(first, looks[-1]).cpu, contender.usage.peak_bytes))
    bench.tell(", ".join(f"{mark:,}: {cost.cpu:.1f} us" for mark, cost in zip(marks, costs, strict=True)))
    return costs


def _section(title: str, how: str, costs: Mapping[str, Sequence[Cost]], base: str) -> Section:
    ratios = {
        name: statistics.median(run.cpu / usual.cpu for run, usual in zip(runs, costs[base], strict=True))
        for name, runs in costs.items()
    }
    memory = {name: statistics.median(run.memory for run in runs) / MIB for name, runs in costs.items()}
    lines = [
        [name, f"{statistics.median(run.cpu for run in runs):.1f}", f"{ratios[name]:.2f}", f"{memory[name]:,.0f}"]
        for name, runs in costs.items()
    ]
    bars = [
        Bar(f"the dearest row, beside {base}", max(ratios.values()), most=1.1),
        Bar(f"the cheapest row, beside {base}", min(ratios.values()), least=0.9),
    ]
    return Section(title, how, ("", "CPU us/row", f"beside {base}", "peak MiB"), lines, bars)

"""The time from the start of a process to its first answer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from bench.ground import GIVE_UP, SMALL, WORKER, Bench, Job, fill, response_topic
from bench.running import running
from bench.tables import Bar, Section
from bench.turns import take_turns
from tests.kafka.cluster import Reader

LOOP = "hand_loop"
HOW = """From starting the process to reading its first answer, with requests waiting in the topic and a fresh group; an
MLP 256→256→16, batches of 64, the worker's checks at start and its warm-up included."""


def measured(bench: Bench) -> Iterator[Section]:
    """Compares the worker with the hand loop."""
    requests = fill(bench.cluster, 10_000)
    job = Job(bench.cluster, [requests], bench.model(SMALL), 64)
    names = [*bench.workers, LOOP]
    found = take_turns(names, bench.asked.rounds, lambda name: _first_answer(bench, name, job), bench.tell)
    bench.cluster.delete_topic(requests)
    lines = [
        [name, f"{statistics.median(runs):.2f}", f"{min(runs):.2f}-{max(runs):.2f}"] for name, runs in found.items()
    ]
    pairs = zip(found[WORKER], found[LOOP], strict=True)
    bars = [Bar("the worker, as a part of the hand loop", statistics.median(a / b for a, b in pairs), most=1.5)]
    yield Section("First answer", HOW, ("", "seconds", "min-max"), lines, bars)


def _first_answer(bench: Bench, name: str, job: Job) -> float:
    with response_topic(bench.cluster) as responses, Reader(bench.cluster, responses) as reader:
        began = time.monotonic()
        with running(name, job, responses) as contender:
            while not reader.records:
                assert time.monotonic() - began < GIVE_UP, f"{name} does not answer"
                contender.check()
                reader.read(0.1)
        seconds = time.monotonic() - began
    bench.tell(f"{name}: {seconds:.2f} s")
    return seconds

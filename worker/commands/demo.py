"""`inference-worker demo`: what batching buys, seen in under a minute on a broker that needs no installing.

Two real workers, one of them with batches of one row, get the same handwritten digits: first a heap of requests at
once, which shows what each can do; then a steady rate that is too much for one by one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
from rich.console import Console

from worker.demo.contender import Closed, Contender, Topics
from worker.demo.digits import held_out
from worker.demo.load import Tally
from worker.demo.screen import Screen, comparison
from worker.kafka.embedded import PARTITIONS, EmbeddedBroker

# A mock partition keeps 5 MB and silently drops the oldest: 20,000 requests of about 450 bytes are 2.3 MB in each.
MOST_REQUESTS = 16_000
AT_ONCE = 4_000
SECONDS = 4
# The steady rate: three times what one by one can do, unless that would be hard work for the batching worker too.
OVERLOAD = 3.0
COMFORT = 0.7
BATCH_SIZES = {"one by one": 1, "batched": 64}


class Result(NamedTuple):
    """What one contender did with its two loads, and how its batches closed under the steady one."""

    contender: Contender
    at_once: Tally
    steady: Tally
    closed: Closed


def demo(at_once: int = AT_ONCE, seconds: float = SECONDS) -> int:
    """0 when every request was answered once, without an error. Raises `Stop` when a worker or the broker fails."""
    # SIGTERM unwinds like Ctrl-C, so that no worker is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    console.print(
        "[bold]Handwritten digits, classified by two workers.[/bold]\nThe broker is a mock (librdkafka's own, inside "
        "this process). The workers, the model and every request are real.\n"
    )
    with EmbeddedBroker() as broker, ExitStack() as stack:
        contenders = [stack.enter_context(_contender(broker, name)) for name in BATCH_SIZES]
        for contender in contenders:
            contender.replica.wait_until_ready()
        with Screen(console) as screen:
            results, rate = _compete(contenders, screen, at_once, seconds)
        for contender in contenders:
            contender.replica.stop()
    _report(console, results, rate)
    return 0 if all(_is_whole(tally) for result in results for tally in (result.at_once, result.steady)) else 1


def _contender(broker: EmbeddedBroker, name: str) -> Contender:
    topics = Topics(f"digits-{BATCH_SIZES[name]}", f"answers-{BATCH_SIZES[name]}", PARTITIONS)
    for topic in (topics.requests, topics.answers):
        broker.create_topic(topic, PARTITIONS)
    return Contender(name, BATCH_SIZES[name], broker.bootstrap_servers, topics, os.environ)


def _compete(contenders: Sequence[Contender], screen: Screen, heap: int, seconds: float) -> tuple[list[Result], float]:
    images = held_out()
    at_once = [c.face(images, heap, np.inf, screen, f"{heap:,} at once") for c in contenders]
    slowest, fastest = at_once[0].rate, at_once[-1].rate
    rate = round(min(OVERLOAD * slowest, COMFORT * fastest), -2)
    requests = min(MOST_REQUESTS, int(rate * seconds))
    results = []
    for contender, first in zip(contenders, at_once, strict=True):
        before = contender.closed(heap)
        steady = contender.face(images, requests, rate, screen, f"{rate:,.0f} a second")
        after = contender.closed(heap + requests)
        results.append(Result(contender, first, steady, after.since(before)))
    return results, rate


def _is_whole(tally: Tally) -> bool:
    return tally.answers == tally.requests and not tally.repeats and not tally.errors


def _report(console: Console, results: Sequence[Result], rate: float) -> None:
    gain = results[-1].at_once.rate / results[0].at_once.rate
    rows = [
        (f"results/s, {results[0].at_once.requests:,} requests at once", [f"{r.at_once.rate:,.0f}" for r in results]),
        ("", []),
        (f"requests, {rate:,.0f} a second", [f"{r.steady.requests:,}" for r in results]),
        ("answers", [f"{r.steady.answers:,}" for r in results]),
        ("right", [f"{r.steady.right / r.steady.answers:.1%}" for r in results]),
        ("results/s", [f"{r.steady.rate:,.0f}" for r in results]),
        ("latency p50", [_milliseconds(r.steady, 50) for r in results]),
        ("latency p99", [_milliseconds(r.steady, 99) for r in results]),
        ("", []),
        ("batches", [f"{sum(r.closed.batches.values()):,.0f}" for r in results]),
        ("mean rows", [f"{r.closed.mean_rows:.1f}" for r in results]),
        *(
            (f"closed by {reason}", [f"{r.closed.batches[reason]:,.0f}" for r in results])
            for reason in _reasons(results)
        ),
    ]
    heads = [f"{r.contender.name}\nMAX_BATCH_SIZE={r.contender.batch_size}" for r in results]
    console.print()  # the bars end without a line's end where there is no terminal
    console.print(comparison(heads, rows))
    console.print(
        f"Batching answers {gain:.1f} times as many requests per second with the same model on the same machine."
    )


def _reasons(results: Sequence[Result]) -> list[str]:
    """The reasons for which any batch closed."""
    return [reason for reason in results[0].closed.batches if any(r.closed.batches[reason] for r in results)]


def _milliseconds(tally: Tally, percent: int) -> str:
    milliseconds = np.percentile(tally.latencies, percent) * 1000
    return f"{milliseconds:,.1f} ms" if milliseconds < 100 else f"{milliseconds:,.0f} ms"

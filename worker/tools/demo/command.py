"""`inference-worker demo`: what batching buys, seen in under a minute on a broker that needs no installing.

Two real workers, one of them with batches of one row, get the same handwritten digits: first a heap of requests at
once, which shows what each can do; then a steady rate at which the batching worker keeps up and one by one does not.
"""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from rich.console import Console

from worker.signals import unwind_when_told
from worker.terminal import terminal
from worker.tools.demo.contender import Closed, DemoWorker, LoadTally
from worker.tools.demo.digits import guess, held_out, requests
from worker.tools.demo.screen import DemoScreen, comparison
from worker.tools.load.generator import Generator
from worker.tools.load.pace import Backlog, Steady

# A mock partition keeps 5 MB and silently drops the oldest: 16,000 requests of about 450 bytes are 1.8 MB in each.
MOST_REQUESTS = 16_000
AT_ONCE = 4_000
SECONDS = 4
QUIETEST = 100.0  # requests a second
# The steady rate: twice what one by one can do, unless that would be hard work for the batching worker too. Sending,
# the broker and reading take their share of the machine all the while, which a heap of requests does not show.
OVERLOAD = 2.0
COMFORT = 0.4
# Where the batching worker still falls behind, the machine has other things to do: halve the rate, so many times.
HALVINGS = 2
# Half of the answers within this: an answer waits for company and its turn, not in a queue that grows.
PROMPT_MS = 100
BATCH_SIZES = {"one by one": 1, "batched": 64}


class Result(NamedTuple):
    """What one contender did at a steady rate (requests per second), and how its batches closed."""

    contender: DemoWorker
    rate: float
    tally: LoadTally
    closed: Closed

    @property
    def keeps_up(self) -> bool:
        return self.tally.latency_ms["p50"] < PROMPT_MS


def demo(at_once: int = AT_ONCE, seconds: float = SECONDS, *, open_pages: bool = False) -> int:
    """0 when no answer was an error. Raises `Stop` when a worker or the broker fails, never for being slow."""
    unwind_when_told()  # so that no worker is left behind
    console = terminal.console()
    console.print(
        "[bold]Handwritten digits, classified by two workers.[/bold]\nThe broker is a mock (librdkafka's own, inside "
        "this process). The workers, the model and every request are real.\n"
    )
    images = held_out()
    with Generator(requests(images), guess) as generator, ExitStack() as stack:
        contenders = [
            stack.enter_context(DemoWorker(name, size, generator, images, os.environ))
            for name, size in BATCH_SIZES.items()
        ]
        for contender in contenders:
            contender.replica.wait_until_ready()
            console.print(f"Live page of the worker {contender.name}: {contender.replica.url}/", highlight=False)
            if open_pages:
                webbrowser.open(contender.replica.url)
        with DemoScreen(console, images) as screen:
            heaps, results = _compete(_Loads(generator, screen), contenders, at_once, seconds)
        for contender in contenders:
            contender.replica.stop()
    _report(console, heaps, results)
    return 1 if any(tally.errors for tally in heaps) or any(result.tally.errors for result in results) else 0


class _Loads:
    """Gives contenders their loads, each with a bar on the screen."""

    def __init__(self, generator: Generator, screen: DemoScreen) -> None:
        self._generator = generator
        self._screen = screen

    def heap(self, contender: DemoWorker, requests: int) -> LoadTally:
        return self._run(contender, Backlog(requests), f"{requests:,} at once")

    def steady(self, contender: DemoWorker, rate: float, seconds: float) -> Result:
        rate = max(QUIETEST, round(rate, -2))
        before = contender.closed()
        pace = Steady(rate, min(MOST_REQUESTS, int(rate * seconds)))
        tally = self._run(contender, pace, f"{rate:,.0f} a second")
        return Result(contender, rate, tally, contender.closed().since(before))

    def _run(self, contender: DemoWorker, pace: Backlog | Steady, title: str) -> LoadTally:
        self._screen.begin(f"{contender.name}: {title}", pace.count)
        tally = contender.face(pace, lambda: self._screen.show(self._generator.answered, self._generator.latest))
        self._screen.show(tally.answers, self._generator.latest)
        return tally


def _compete(
    loads: _Loads, contenders: Sequence[DemoWorker], heap: int, seconds: float
) -> tuple[list[LoadTally], list[Result]]:
    """What each made of a heap of requests, and of the steady rate at which the batching one keeps up."""
    heaps = [loads.heap(contender, heap) for contender in contenders]
    slow, fast = contenders
    rate = min(OVERLOAD * heaps[0].rate, COMFORT * heaps[1].rate)
    batched = loads.steady(fast, rate, seconds)
    for _ in range(HALVINGS):
        if batched.keeps_up:
            break
        rate /= 2
        batched = loads.steady(fast, rate, seconds)
    return heaps, [loads.steady(slow, rate, seconds), batched]


def _report(console: Console, heaps: Sequence[LoadTally], results: Sequence[Result]) -> None:
    tallies = [result.tally for result in results]
    rows = [
        (f"[bold]{heaps[0].requests:,} requests at once[/bold]", ["", ""]),
        ("answers per second", [f"{tally.rate:,.0f}" for tally in heaps]),
        ("", []),
        (f"[bold]{results[0].rate:,.0f} requests a second[/bold]", ["", ""]),
        ("requests", [f"{tally.requests:,}" for tally in tallies]),
        ("answers", [f"{tally.answers:,}" for tally in tallies]),
        ("of them right", [f"{tally.right / tally.answers:.1%}" for tally in tallies]),
        ("answers per second", [f"{tally.rate:,.0f}" for tally in tallies]),
        ("latency p50", [_latency(tally, "p50") for tally in tallies]),
        ("latency p99", [_latency(tally, "p99") for tally in tallies]),
        ("batches", [f"{sum(result.closed.batches.values()):,.0f}" for result in results]),
        ("rows in a batch, mean", [f"{result.closed.mean_rows:.1f}" for result in results]),
        *(
            (f"batches closed by {reason}", [f"{result.closed.batches[reason]:,.0f}" for result in results])
            for reason in _reasons(results)
        ),
    ]
    heads = [f"{r.contender.name}\nMAX_BATCH_SIZE={r.contender.batch_size}" for r in results]
    console.print()  # the bars end without a line's end where there is no terminal
    console.print(comparison(heads, rows))
    for line in _conclusions(heaps, results):
        console.print(line)


def _conclusions(heaps: Sequence[LoadTally], results: Sequence[Result]) -> Iterator[str]:
    yield "Latency counts from the instant a request is due until its answer is read."
    gain = heaps[1].rate / heaps[0].rate
    yield f"Batching answers {gain:.1f} times as many requests per second with the same model on the same machine."
    one_by_one, batched = results
    if not batched.keeps_up:
        yield "This machine is busy: even at a gentle rate the requests wait, and the latencies are those of a queue."
    elif not one_by_one.keeps_up:
        yield "At the steady rate one by one falls behind: its latency is that of a queue, and grows with every second."
    else:
        yield "This machine is busy: at a rate that is gentle enough for it, both keep up."
    tallies = [*heaps, one_by_one.tally, batched.tally]
    if wrong := sum(tally.errors for tally in tallies):
        yield f"[bold red]{wrong} answers were errors.[/bold red]"
    if twice := sum(tally.repeats for tally in tallies):
        yield f"{twice} answers came twice, as at-least-once delivery allows."


def _reasons(results: Sequence[Result]) -> list[str]:
    return [reason for reason in results[0].closed.batches if any(r.closed.batches[reason] for r in results)]


def _latency(tally: LoadTally, quantile: str) -> str:
    figure = tally.latency_ms.get(quantile)
    return "–" if figure is None else terminal.milliseconds(figure)  # of too few requests there is none

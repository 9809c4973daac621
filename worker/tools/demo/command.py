"""`inference-worker demo`: what batching buys, seen in under a minute on a broker that needs no installing.

Two real workers, one of them with batches of one row, get the same handwritten digits: first a heap of requests at
once, which shows what each can do; then a steady rate at which the batching worker keeps up and one by one does not.
"""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import cycle

from rich.console import Console

from worker.signals import unwind_when_told
from worker.terminal import terminal
from worker.tools.bench.generator import Generator
from worker.tools.bench.loads import Backlog, Steady
from worker.tools.demo.contender import DemoWorker, LoadTally
from worker.tools.demo.digits import guess, held_out, requests
from worker.tools.demo.report import Result, show_next, show_report
from worker.tools.demo.screen import DemoScreen

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
BATCH_SIZES = {"one by one": 1, "batched": 64}
# While the pages stay up each worker in turn gets so many requests a second for so long, so that there is something to
# see, and the machine has little to do.
GENTLE, TURN_S = 100, 2


def demo(at_once: int = AT_ONCE, seconds: float = SECONDS, *, open_pages: bool = False, stay: bool = False) -> int:
    """0 when no answer was an error. Raises `Stop` when a worker or the broker fails, never for being slow."""
    unwind_when_told()  # so that no worker is left behind
    console = terminal.console()
    console.print(
        "[bold]Handwritten digits, classified by two workers.[/bold]\n"
        "The broker is a mock (librdkafka's own, inside this process).\n"
        "The workers, the model and every request are real.\n"
    )
    images = held_out()
    with Generator(requests(images), guess) as generator, ExitStack() as stack:
        contenders = [
            stack.enter_context(DemoWorker(name, size, generator, images, os.environ))
            for name, size in BATCH_SIZES.items()
        ]
        for contender in contenders:
            contender.replica.wait_until_ready()
            if open_pages:
                webbrowser.open(contender.replica.url)
        _show_pages(console, contenders)
        with DemoScreen(console, images) as screen:
            heaps, results = _compete(_Loads(generator, screen), contenders, at_once, seconds)
        show_report(console, heaps, results)
        show_next(console)
        if stay:
            _stay(console, contenders)
        else:
            for contender in contenders:
                contender.replica.stop()
    return 1 if any(tally.errors for tally in (*heaps, *(result.tally for result in results))) else 0


def _show_pages(console: Console, contenders: Sequence[DemoWorker]) -> None:
    for contender in contenders:
        console.print(f"Live page of the worker {contender.name}: {contender.replica.url}/", highlight=False)


def _stay(console: Console, contenders: Sequence[DemoWorker]) -> None:
    """Until Ctrl-C, which the workers hear as well: they are on their way out then, and are not asked again."""
    console.print(f"\n[bold]Until Ctrl-C both workers go on, with {GENTLE} requests a second in turns.[/bold]")
    _show_pages(console, contenders)
    with suppress(KeyboardInterrupt):
        for contender in cycle(contenders):
            contender.face(Steady(GENTLE, GENTLE * TURN_S), lambda: None)


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
        return Result(contender.name, contender.batch_size, rate, tally, contender.closed().since(before))

    def _run(self, contender: DemoWorker, pace: Backlog | Steady, title: str) -> LoadTally:
        self._screen.begin((contender.name, type(pace)), f"{contender.name}: {title}", pace.count)
        tally = contender.face(pace, lambda: self._screen.show(self._generator.answered, self._generator.latest))
        self._screen.show(tally.answers, self._generator.latest)
        return tally


def _compete(
    loads: _Loads, contenders: Sequence[DemoWorker], heap: int, seconds: float
) -> tuple[list[LoadTally], list[Result]]:
    """What each made of a heap of requests, and of the steady rate at which the batching one keeps up.

    One by one goes first, always: a rate at which both fall behind is begun anew with both.
    """
    heaps = [loads.heap(contender, heap) for contender in contenders]
    one_by_one, batched = heaps
    rate = min(OVERLOAD * one_by_one.rate, COMFORT * batched.rate)
    results = [loads.steady(contender, rate, seconds) for contender in contenders]
    for _ in range(HALVINGS):
        if results[-1].keeps_up:
            break
        rate /= 2
        results = [loads.steady(contender, rate, seconds) for contender in contenders]
    return heaps, results

"""What the demo found, for people: the verdict, the figures, and what to type next."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from worker.terminal import terminal
from worker.tools.demo.contender import Closed, LoadTally
from worker.tools.demo.digits import MODEL
from worker.tools.demo.screen import comparison

# Half of the answers within this: an answer waits for company and its turn, not in a queue that grows.
PROMPT_MS = 100


class Result(NamedTuple):
    """What one worker did at a steady rate (requests per second), and how its batches closed."""

    name: str
    batch_size: int
    rate: float
    tally: LoadTally
    closed: Closed

    @property
    def keeps_up(self) -> bool:
        return self.tally.latency_ms["p50"] < PROMPT_MS


def show_report(console: Console, heaps: Sequence[LoadTally], results: Sequence[Result]) -> None:
    """The verdict first. Of each kind: one by one, then batched."""
    console.print()  # the bars end without a line's end where there is no terminal
    for line in _verdict(heaps, results):
        _say(console, line, "bold")
    console.print(comparison([f"{r.name}\nMAX_BATCH_SIZE={r.batch_size}" for r in results], _figures(heaps, results)))
    _say(console, "Latency counts from the instant a request is due until its answer is read.")
    tallies = [*heaps, *(result.tally for result in results)]
    if wrong := sum(tally.errors for tally in tallies):
        _say(console, f"{wrong} answers were errors.", "bold red")
    if twice := sum(tally.repeats for tally in tallies):
        _say(console, f"{twice} answers came twice, as at-least-once delivery allows.")


def show_next(console: Console) -> None:
    """Two commands that can be pasted as they stand."""
    program, model = _program(), _from_here(MODEL)
    brokers = ["--bootstrap-servers", "localhost:9092", "--requests", "requests", "--answers", "answers"]
    console.print()
    _say(console, "Next, for a model of yours in the place of this one, and without a Kafka:")
    terminal.say(console, f"  {shlex.join([program, 'profile', model])}", "green")
    _say(console, "And with your Kafka, all that a worker would lack there:")
    terminal.say(
        console, f"  {shlex.join([program, 'check', '--model', model, *brokers, '--group', 'digits'])}", "green"
    )


def _say(console: Console, sentence: str, style: str = "") -> None:
    terminal.write(console, Text(sentence, style=style), indent=0)


def _program() -> str:
    """As it was called, or its name where the shell would find the same."""
    called, name = sys.argv[0], "inference-worker"
    if Path(called).name != name or shutil.which(name) == called:
        return name
    return _from_here(Path(called))


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _verdict(heaps: Sequence[LoadTally], results: Sequence[Result]) -> Iterator[str]:
    gain = heaps[1].rate / heaps[0].rate
    yield f"Batching answers {gain:.1f} times as many requests per second, with the same model on the same machine."
    one_by_one, batched = results
    at = f"At {batched.rate:,.0f} requests a second"
    if not batched.keeps_up:
        yield "This machine is busy: at a gentle rate, too, requests wait, and the latencies are those of a queue."
    elif one_by_one.keeps_up:
        yield f"{at} both keep up: this machine is busy, so the rate had to be a gentle one."
    else:
        yield f"{at} half of the batched answers come within {_latency(batched.tally, 'p50')}."
        yield "One by one falls behind there: its latency is that of a queue, and grows with every second."


def _figures(heaps: Sequence[LoadTally], results: Sequence[Result]) -> list[tuple[str, list[str]]]:
    tallies = [result.tally for result in results]
    return [
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


def _reasons(results: Sequence[Result]) -> list[str]:
    return [reason for reason in results[0].closed.batches if any(r.closed.batches[reason] for r in results)]


def _latency(tally: LoadTally, quantile: str) -> str:
    figure = tally.latency_ms.get(quantile)
    return "–" if figure is None else terminal.milliseconds(figure)  # of too few requests there is none

"""`inference-worker demo`: a worker's speed next to a plain loop, a `kill -9` that loses nothing, a topic of records.

It takes half a minute. The broker needs no installation: it is librdkafka's mock, inside this process. All else is
real. `bench`'s generator makes the load.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.signals import unwind_when_told
from worker.terminal.terminal import console, milliseconds, progress, say, write
from worker.tools.bench.figures import Flow, Heard, Steady, Window, steady_flow, window_flow
from worker.tools.bench.generator import Generator, Site, mock_site
from worker.tools.demo import plain_loop
from worker.tools.demo.digits import MODEL, held_out, requests
from worker.tools.demo.options import DemoOrder
from worker.tools.demo.payments import RECORDS, Scored, scored
from worker.tools.kafka.embedded import CLIENT_CONFIG
from worker.tools.processes import Process, Replica

# The maximum is measured with half a second's requests under way, but no more than a mock keeps: 8,000 of 700 bytes.
MAXIMUM_S, MOST = 2.0, 8_000
STEADY_RATE, STEADY_S = 1_000, 4
KILL_RATE, KILL_S, KILL_AFTER_S = 800, 8, 3
BROKEN_EVERY = 100
# Milliseconds of silence after which the broker gives a dead worker's partitions to another.
SESSION_TIMEOUT_MS = 3000
# Requests a second with `--stay`: enough to see something, and little work for the machine.
GENTLE_RATE = 100
# Seconds that the last answer of a load may take. This ends only a process that hangs.
_PATIENCE_S = 60.0


class Killed(NamedTuple):
    """The outcome of a load during which a worker was killed. `longest_ms`: the longest wait for an answer."""

    requests: int
    heard: Heard
    longest_ms: float

    @property
    def missing(self) -> int:
        return self.requests - len(self.heard.numbers)


def demo(order: DemoOrder, scale: float = 1.0) -> int:
    """Run the demo. Returns 0 if every request was answered. Raises `Stop` if a process or the broker fails.

    Being slow is no failure. `scale` multiplies the length of all loads.
    """
    unwind_when_told()  # so that no process is left behind
    screen = console()
    _say(screen, "Handwritten digits, classified from Kafka.", "bold")
    _say(screen, "The broker is a mock inside this process; the workers, the model and every request are real.\n")
    good = requests(held_out())
    with Generator(good) as generator:
        loads = [_compared(generator, contender, scale) for contender in (_plain_loop, _worker)]
    _show_speed(screen, *loads)
    broken = [good[at]._replace(value=good[at].value[:100]) if at == 50 else good[at] for at in range(BROKEN_EVERY)]
    with mock_site({}) as site, Generator(broken) as generator, _worker(site) as one, _worker(site) as other:
        for worker in (one, other):
            worker.wait_until_ready()
        generator.open(site)
        killed = _killed(generator, one, other, scale)
        _show_kill(screen, killed)
        with progress("a topic of payments", None):
            answers = scored(_PATIENCE_S)
        _show_payments(screen, answers)
        _show_next(screen)
        if order.stay:
            _stay(screen, generator, other)
    return 1 if killed.missing or any(flow.unanswered for load in loads for flow in load) else 0


def _plain_loop(site: Site) -> Process:
    command = [plain_loop.__file__, site.kafka.bootstrap_servers, str(MODEL)]
    return Process("the plain loop", command, os.environ)


def _worker(site: Site) -> Replica:
    settings = {
        "KAFKA__BOOTSTRAP_SERVERS": site.kafka.bootstrap_servers,
        "KAFKA__REQUEST_TOPICS": site.requests,
        "KAFKA__RESPONSE_TOPIC": site.answers,
        "KAFKA__DEAD_LETTER_TOPIC": site.rejected,
        "KAFKA__GROUP_ID": "digits",
        "KAFKA__SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
        "KAFKA__CONFIG": json.dumps(CLIENT_CONFIG),
        "MODEL__PATH": str(MODEL),
        "MODEL__DEVICE": "cpu",
        "BATCHING__MAX_BATCH_SIZE": "64",
    }
    return Replica(settings, os.environ)


def _compared(generator: Generator, contender: Callable[[Site], Process], scale: float) -> tuple[Flow, Flow]:
    """Measures the maximum, then a steady rate, on a fresh broker: a used mock would still hold earlier requests."""
    with mock_site({}) as site, contender(site) as one:
        one.wait_until_ready()
        generator.open(site)
        window = Window(512, MOST, MAXIMUM_S * scale)
        with progress(f"{one.name}: as many as it can", None) as show:
            sent, heard = generator.run(window, _watching(generator, one, show), _PATIENCE_S)
        maximum = window_flow(window, sent, heard)
        steady = Steady(STEADY_RATE, int(STEADY_RATE * STEADY_S * scale))
        with progress(f"{one.name}: {STEADY_RATE:,} a second", steady.count) as show:
            sent, heard = generator.run(steady, _watching(generator, one, show), _PATIENCE_S)
        return maximum, steady_flow(steady, sent, heard, time.monotonic())


def _watching(generator: Generator, one: Process, show: Callable[[int], None]) -> Callable[[], None]:
    def watch() -> None:
        one.check()
        show(generator.answered)

    return watch


def _killed(generator: Generator, one: Process, other: Process, scale: float) -> Killed:
    pace = Steady(KILL_RATE, int(KILL_RATE * KILL_S * scale))
    until = time.monotonic() + KILL_AFTER_S * scale
    with progress("two workers, one of them killed", pace.count) as show:

        def watch() -> None:
            other.check()
            show(generator.answered)
            if time.monotonic() > until and not one.is_killed:
                one.kill()

        sent, heard = generator.run(pace, watch, _PATIENCE_S)
    waited = heard.instants - sent.began - heard.numbers / pace.rate
    return Killed(sent.requests, heard, float(waited.max(initial=0.0)) * 1000)


def _show_speed(screen: Console, loop: tuple[Flow, Flow], worker: tuple[Flow, Flow]) -> None:
    _say(screen, "1. Next to a loop that polls 64 requests, runs them, produces and commits", "bold")
    table = Table(box=box.ROUNDED)
    for name in ("requests as JSON", "plain loop", "inference-worker"):
        table.add_column(name, justify="left" if name.startswith("requests") else "right")
    for name in ("p50", "p99"):
        told = (milliseconds(flow.latency_ms[name]) if name in flow.latency_ms else "–" for _, flow in (loop, worker))
        table.add_row(f"{STEADY_RATE:,} a second: latency {name}", *told)
    table.add_row("at most, a second", *(f"{flow.requests_per_second:,.0f}" for flow, _ in (loop, worker)))
    write(screen, table)
    loop_file = _from_here(Path(plain_loop.__file__))
    _say(
        screen,
        f"The loop is {loop_file}. Latency counts from the instant when a request is due. The worker's most is not "
        "more than the loop's here: a mock acknowledges at once, so the loop loses no time by waiting for it, and the "
        "worker's checks cost some µs a request. What they give comes now.\n",
    )


def _show_kill(screen: Console, load: Killed) -> None:
    heard, broken = load.heard, load.heard.errors.total()
    _say(screen, f"2. kill -9 of one of two workers that share {KILL_RATE} requests a second", "bold")
    _say(
        screen,
        f"{load.requests:,} requests, {broken} of them broken: {load.missing} missing.",
        "bold red" if load.missing else "bold green",
    )
    _say(screen, f"{heard.repeated} answers came twice: their offsets were not committed yet.")
    _say(screen, f"The other worker took over; the longest wait was {milliseconds(load.longest_ms)}.")
    if heard.error is not None:
        reason = json.loads(heard.error)["error"]
        _say(screen, f"{broken} answers are errors with the reason, where the plain loop would have ended:\n{reason}")


def _show_payments(screen: Console, scored: Sequence[Scored]) -> None:
    """Show each record with its answer, a wrong one last, and the settings that made the answers."""
    _say(screen, "\n3. A topic of payments, JSON objects as a shop writes them, and a model of fraud", "bold")
    for payment, answer in scored:
        say(screen, payment)
        say(screen, f"→ {answer}", "green" if "label" in answer else "red")
    _say(screen, "The last one is wrong, and its answer says why. Seven lines of settings do it:")
    for line in RECORDS.splitlines():
        say(screen, f"  {line}")


def _show_next(screen: Console) -> None:
    """Show two commands to paste. They name the program as it was called, because it may not be on the path."""
    called, name, model = Path(sys.argv[0]), "inference-worker", _from_here(MODEL)
    program = _from_here(called) if called.name == name else name
    _say(screen, "\nNext, for a model of yours in the place of this one, and without a Kafka:")
    say(screen, f"  {shlex.join([program, 'profile', '--model', model])}", "green")
    _say(screen, "And with your Kafka, a settings file:")
    say(screen, f"  {shlex.join([program, 'init', '--model', model])}", "green")


def _stay(screen: Console, generator: Generator, worker: Replica) -> None:
    """Send gentle load until Ctrl-C, which the worker gets as well."""
    say(screen, f"\nUntil Ctrl-C a worker goes on, with {GENTLE_RATE} requests a second: {worker.url}/", "bold")
    with suppress(KeyboardInterrupt, SystemError):  # a Kafka client may turn the first into the second
        while True:
            generator.run(Steady(GENTLE_RATE, GENTLE_RATE), lambda: None, _PATIENCE_S)


def _say(screen: Console, sentence: str, style: str = "") -> None:
    write(screen, Text(sentence, style=style), indent=0)


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

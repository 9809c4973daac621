"""`inference-worker demo`: a worker's speed next to a plain loop, and a `kill -9` that loses nothing, in half a minute.

The broker needs no installing: it is librdkafka's mock, inside this process. All else is real.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from rich import box
from rich.columns import Columns
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from worker.signals import unwind_when_told
from worker.terminal.terminal import console, milliseconds, progress, say, write
from worker.tools.demo import plain_loop
from worker.tools.demo.digits import MODEL, SIDE, ReadDigit, held_out
from worker.tools.demo.options import DemoOrder
from worker.tools.demo.scene import Contender, Scene, Tally

# A mock partition keeps 5 MB and silently drops the oldest: 16,000 requests of about 450 bytes are 1.8 MB in each.
AT_ONCE = 8_000
STEADY_RATE, STEADY_S = 1_000, 4
KILL_RATE, KILL_S, KILL_AFTER_S = 800, 8, 3
BROKEN_EVERY = 100
# With `--stay`: so many requests a second, so that there is something to see and the machine has little to do.
GENTLE_RATE = 100


def demo(order: DemoOrder, scale: float = 1.0) -> int:
    """0 when every request was answered. Raises `Stop` when a process or the broker fails, never for being slow.

    `scale`: of all loads.
    """
    unwind_when_told()  # so that no process is left behind
    screen = console()
    _say(screen, "Handwritten digits, classified from Kafka.", "bold")
    _say(screen, "The broker is a mock inside this process; the workers, the model and every request are real.\n")
    loads = [_compared(Scene.plain_loop, scale), _compared(Scene.worker, scale)]
    _show_speed(screen, *loads)
    with Scene() as scene:
        workers = [scene.worker(), scene.worker()]
        for worker in workers:
            worker.wait_until_ready()
        killed = _killed(scene, workers[0], scale)
        _show_kill(screen, killed)
        _show_next(screen)
        if order.stay:
            _stay(screen, scene, workers[1])
    return 1 if any(load.missing for load in (*loads[0], *loads[1], killed)) else 0


def _compared(contender: Callable[[Scene], Contender], scale: float) -> tuple[Tally, Tally]:
    """All at once, then at a steady rate: on a broker of its own, for a mock would keep what came before."""
    with Scene() as scene:
        one = contender(scene)
        one.wait_until_ready()
        loads = _watched(scene, f"{one.name}: {AT_ONCE:,} at once", int(AT_ONCE * scale), None)
        steady = int(STEADY_RATE * STEADY_S * scale)
        return loads, _watched(scene, f"{one.name}: {STEADY_RATE:,} a second", steady, STEADY_RATE)


def _watched(scene: Scene, title: str, count: int, rate: float | None) -> Tally:
    with progress(title, count) as show:
        return scene.load(count, rate, lambda _, tally: show(len(tally.waited)))


def _killed(scene: Scene, worker: Contender, scale: float) -> Tally:
    count = int(KILL_RATE * KILL_S * scale)
    with progress("two workers, one of them killed", count) as show:

        def watch(seconds: float, tally: Tally) -> None:
            show(len(tally.waited))
            if seconds > KILL_AFTER_S * scale and not worker.is_killed:
                worker.kill()

        return scene.load(count, KILL_RATE, watch, BROKEN_EVERY)


def _show_speed(screen: Console, loop: tuple[Tally, Tally], worker: tuple[Tally, Tally]) -> None:
    _say(screen, "1. Next to a loop that polls 64 requests, runs them, produces and commits", "bold")
    if screen.is_terminal:
        write(screen, Columns([_drawn(digit) for digit in worker[1].newest], padding=(1, 1)))
    table = Table(box=box.ROUNDED)
    for name in ("", "plain loop", "inference-worker"):
        table.add_column(name, justify="right" if name else "left")
    for row in _figures(loop, worker):
        table.add_row(*row)
    write(screen, table)
    loop_file = _from_here(Path(plain_loop.__file__))
    _say(screen, f"The loop is {loop_file}. Latency counts from the instant when a request is due.\n")


def _figures(loop: tuple[Tally, Tally], worker: tuple[Tally, Tally]) -> Iterator[list[str]]:
    yield [f"{loop[0].requests:,} at once: answers a second", *(f"{heap.rate:,.0f}" for heap, _ in (loop, worker))]
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        at = f"{STEADY_RATE:,} a second: latency {name}"
        yield [at, *(milliseconds(steady.latency_ms(part)) for _, steady in (loop, worker))]
    yield ["digits that were read right", *(f"{steady.right / steady.requests:.1%}" for _, steady in (loop, worker))]


def _show_kill(screen: Console, load: Tally) -> None:
    _say(screen, f"2. kill -9 of one of two workers that share {KILL_RATE} requests a second", "bold")
    broken = sum(load.errors.values())
    _say(
        screen,
        f"{load.requests:,} requests, {broken} of them broken: {load.missing} missing.",
        "bold red" if load.missing else "bold green",
    )
    _say(screen, f"{load.repeats} answers came twice: their offsets were not committed yet.")
    _say(screen, f"The other worker took over; the longest wait was {milliseconds(load.latency_ms(1))}.")
    for reason, count in load.errors.most_common(1):
        _say(screen, f"{count} answers are errors with the reason, where the plain loop would have ended:\n{reason}")


def _show_next(screen: Console) -> None:
    """Two commands that can be pasted as they stand."""
    called, name = sys.argv[0], "inference-worker"
    is_found = Path(called).name != name or shutil.which(name) == called
    program = name if is_found else _from_here(Path(called))
    _say(screen, "\nNext, for a model of yours in the place of this one, and without a Kafka:")
    say(screen, f"  {shlex.join([program, 'profile', '--model', _from_here(MODEL)])}", "green")
    _say(screen, "And with your Kafka, a settings file:")
    say(screen, f"  {shlex.join([program, 'init', '--model', _from_here(MODEL)])}", "green")


def _stay(screen: Console, scene: Scene, worker: Contender) -> None:
    """Until Ctrl-C, which the worker hears as well."""
    say(screen, f"\nUntil Ctrl-C a worker goes on, with {GENTLE_RATE} requests a second: {worker.page}", "bold")
    with suppress(KeyboardInterrupt, SystemError):  # a Kafka client that loses the first raises the other
        while True:
            scene.load(GENTLE_RATE, GENTLE_RATE, lambda *_: None)


def _say(screen: Console, sentence: str, style: str = "") -> None:
    write(screen, Text(sentence, style=style), indent=0)


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _drawn(digit: ReadDigit) -> Text:
    """An image in half blocks, two rows of pixels to a line, and what the worker takes it for."""
    pixels = held_out().pixels
    shades = (pixels[digit.number % len(pixels)].reshape(SIDE, SIDE) * 255).astype(np.int64)
    lines = Text()
    for row in range(0, SIDE, 2):
        for top, bottom in zip(shades[row], shades[row + 1], strict=True):
            lines.append("▀", Style(color=f"rgb({top},{top},{top})", bgcolor=f"rgb({bottom},{bottom},{bottom})"))
        lines.append("\n")
    return lines.append("error" if digit.digit is None else f"{digit.digit} {digit.confidence:>5.0%}", "bold")

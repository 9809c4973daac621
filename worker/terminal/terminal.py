"""The commands' output: results go to standard output, progress to standard error.

So `inference-worker ... > file` holds results alone. Progress is shown only if standard error is a terminal, because a
log file needs none. Owns no state beyond one call.

A closed pipe does not disturb a command (`command_end.py`). Only `consume` gets a `BrokenPipeError`, and ends.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# DEL and the C1 controls, which JSON leaves unescaped and a terminal obeys; lone surrogates, which no encoding has.
_ODD = re.compile("[\x7f-\x9f\ud800-\udfff]")
# The number of columns that every table fits into.
NARROWEST = 80
# Lines longer than this are hard to read, however wide the terminal is.
WIDEST = 110


class Progressed(Protocol):
    """Shows progress: how much is done, and the current step where that changes."""

    def __call__(self, done: int, now: str = ..., /) -> None: ...


def console(*, on_stderr: bool = False) -> Console:
    """A console for tables and sentences, on standard output unless said. Each use makes one: tests replace streams."""
    from rich.console import Console  # noqa: PLC0415 - a command that writes plain lines need not load rich

    screen = Console(stderr=on_stderr, highlight=False)
    screen.on_broken_pipe = _stop  # type: ignore[method-assign]  # rich's own ends with 1, a defect's code
    return screen


def aside() -> Console:
    """A console on standard error, for all that is no result."""
    return console(on_stderr=True)


def _stop() -> NoReturn:
    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def tell(sentence: str) -> None:
    """Write a line on standard error that begins with the program's name."""
    sys.stderr.write(f"inference-worker: {sentence}\n")
    sys.stderr.flush()


def table_console() -> Console:
    """A console for tables, as wide as they need: a narrower one would cut figures, where a terminal wraps lines."""
    screen = console()
    screen.width = max(NARROWEST, screen.width)
    return screen


def is_person_there() -> bool:
    """True if standard input is a terminal: a script, a pipe and a pod have none."""
    return sys.stdin.isatty()


def agreed(question: str) -> bool:
    """Ask on standard error, because standard output is for results. True if the answer is yes."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def say(screen: Console, text: str, style: str = "") -> None:
    """Write one line without breaking it: a terminal breaks it at its own edge, a file keeps it whole."""
    from rich.text import Text  # noqa: PLC0415 - see `console`

    screen.print(Text(text, style=style), soft_wrap=True)


def write(screen: Console, what: RenderableType, indent: int = 2, width: int | None = None) -> None:
    """Write indented, without the spaces that fill a table's last column. `width`: columns; None: the screen's."""
    from rich.padding import Padding  # noqa: PLC0415 - see `console`

    with screen.capture() as written:
        screen.print(Padding(what, (0, 0, 0, indent)), width=width)
    screen.file.write("".join(f"{line.rstrip()}\n" for line in written.get().splitlines()))


def count(number: int, unit: str, plural: str = "s") -> str:
    """A number with its unit: `1 row`, `2,000 rows`. `plural`: the ending of the unit, except after 1."""
    return f"{number:,} {unit}{'' if number == 1 else plural}"


def milliseconds(figure: float) -> str:
    """A figure in milliseconds: `4.2 ms`, `1,250 ms`."""
    return f"{figure:,.1f} ms" if figure < 100 else f"{figure:,.0f} ms"


def printable(text: str) -> str:
    """The text with everything escaped that could move a cursor, change a colour or turn the direction of writing."""
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if text.isprintable() else "".join(escaped)


def print_json(value: Any) -> None:
    """Write one line of JSON on standard output, without control characters.

    Raises `ValueError` for NaN and infinities, which JSON does not have.
    """
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(_ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", line) + "\n")


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Progressed]:
    """Show a bar on standard error until the block ends; the yielded callable moves it. `total`: None if unknown."""
    from rich import progress as bars  # noqa: PLC0415 - where there is no bar it need not be imported
    from rich.table import Column  # noqa: PLC0415 - see `console`

    screen = aside()
    bar = bars.Progress(
        bars.BarColumn(20),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    with bar:
        task = bar.add_task(printable(what), total=total)

        def show(done: int, now: str = what) -> None:
            bar.update(task, completed=done, description=printable(now))

        yield show

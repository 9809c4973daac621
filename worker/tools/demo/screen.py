"""What the demo shows: progress while it runs, a few of the digits that a worker reads, and the table at the end."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.style import Style
from rich.table import Table
from rich.text import Text

from worker.tools.demo.digits import SIDE, Images, ReadDigit

# Each digit stays long enough to be read.
_REFRESH_PER_SECOND = 5
CAPTION = "Digits just answered: what the model takes each for, and how sure it is"


class DemoScreen:
    """Bars for what is sent and answered, and the latest digits. On no terminal only the end of it is printed."""

    def __init__(self, console: Console, images: Images) -> None:
        self._pixels = images.pixels
        self._progress = Progress(
            TextColumn("{task.description:<44}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        # Replaced, never changed: the thread that draws may be reading it.
        self._latest: Sequence[ReadDigit] = ()
        self._live = Live(
            console=console, get_renderable=self._picture, refresh_per_second=_REFRESH_PER_SECOND, transient=False
        )
        self._bars: dict[Hashable, TaskID] = {}
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._latest = ()
        self._live.stop()

    def begin(self, phase: Hashable, title: str, requests: int) -> None:
        """A bar below the others, or that of this phase from its beginning."""
        if phase in self._bars:
            self._progress.reset(self._bars[phase], total=requests, description=title)
        else:
            self._bars[phase] = self._progress.add_task(title, total=requests)
        self._task = self._bars[phase]

    def show(self, answered: int, latest: Sequence[ReadDigit]) -> None:
        """How many answers there are, and what the newest of them say."""
        self._progress.update(self._task, completed=answered)
        self._latest = latest

    def _picture(self) -> Group:
        if not self._latest:
            return Group(self._progress)
        digits = Columns([self._drawn(guess) for guess in self._latest], padding=(1, 1))
        return Group(self._progress, Text(f"\n{CAPTION}", style="dim"), digits)

    def _drawn(self, guess: ReadDigit) -> Text:
        """An image in half blocks, two rows of pixels to a line, and what the worker takes it for."""
        shades = (self._pixels[guess.number % len(self._pixels)].reshape(SIDE, SIDE) * 255).astype(int)
        lines = [_line(shades[row], shades[row + 1]) for row in range(0, SIDE, 2)]
        read = "error" if guess.digit is None else f"{guess.digit} {guess.confidence:>5.0%}"
        return Text("\n").join([*lines, Text(read, style="bold")])


def _line(upper: NDArray[np.int_], lower: NDArray[np.int_]) -> Text:
    line = Text()
    for top, bottom in zip(upper, lower, strict=True):
        line.append("▀", Style(color=f"rgb({top},{top},{top})", bgcolor=f"rgb({bottom},{bottom},{bottom})"))
    return line


def comparison(heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> Table:
    """One column per worker, one row per figure; a row without figures draws a line."""
    table = Table(box=box.ROUNDED)
    table.add_column("")
    for head in heads:
        table.add_column(head, justify="right")
    for name, figures in rows:
        if figures:
            table.add_row(name, *figures)
        else:
            table.add_section()
    return table

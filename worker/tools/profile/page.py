"""What the pages of `profile` share: titles, paragraphs and tables, and how figures are written."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from worker.terminal.terminal import WIDEST, printable, write


def table(heads: Sequence[str], padding: int = 2, *, expand: bool = False) -> Table:
    """Of figures, right-aligned under their heads; a column without a head is text."""
    found = Table(box=None, padding=(0, padding, 0, 0), header_style="dim", pad_edge=False, expand=expand)
    for head in heads:
        found.add_column(head, justify="right" if head else "left", no_wrap=bool(head))
    return found


class Page:
    """A page that is written from top to bottom."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_empty = True

    def title(self, text: str) -> None:
        if not self._is_empty:
            self._console.print()
        self._is_empty = False
        self._console.print(Text(printable(text), "bold"))

    def write(self, what: RenderableType, indent: int = 2) -> None:
        write(self._console, what, indent, min(self._console.width, WIDEST))

    def text(self, text: str, style: str = "") -> None:
        self.write(Text(printable(text), style))

    def setting(self, name: str, value: object) -> None:
        """One to copy, in one line however narrow the terminal is: quoted as a shell wants it."""
        self._console.print(Text(f"    {name}={shlex.quote(str(value))}", "bold green"), soft_wrap=True)


def milliseconds(seconds: float) -> str:
    """Two digits or three, without the unit: a small model's inference takes 0.0041."""
    shown = seconds * 1000
    if shown >= 100:
        return f"{shown:,.0f}"
    digits = 2 if shown >= 0.1 else 3 if shown >= 0.01 else 4
    return f"{shown:.{digits}f}"

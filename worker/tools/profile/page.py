"""What the pages of `profile` share: titles, paragraphs and tables, and how figures are written."""

from __future__ import annotations

import shlex

from rich.console import Console, RenderableType
from rich.text import Text

from worker.terminal.terminal import WIDEST, printable, write


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
        """A paragraph."""
        self.write(Text(printable(text), style))

    def setting(self, name: str, value: object) -> None:
        """One to copy, in one line however narrow the terminal is: quoted as a shell wants it."""
        self._console.print(Text(f"    {name}={shlex.quote(str(value))}", "bold green"), soft_wrap=True)


def milliseconds(seconds: float) -> str:
    """Three digits or so, without the unit."""
    return f"{seconds * 1000:,.0f}" if seconds >= 0.1 else f"{seconds * 1000:.2f}"

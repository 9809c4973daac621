"""What can be asked of `demo` on the command line. Imported with the command line: nothing heavy in here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from worker.terminal.command_options import End, add_command


@dataclass(frozen=True, kw_only=True)
class DemoOrder:
    """Classify handwritten digits, batched and one by one, on a mock broker inside this process."""

    open_pages: Annotated[bool, typer.Option("--open", help="Open both workers' live pages in the browser.")] = False


def register(app: typer.Typer, end: End) -> None:
    """Put the command on the command line."""
    add_command(app, "demo", DemoOrder, _act, end)


def _act(order: DemoOrder) -> int:
    from worker.tools.demo.command import demo  # noqa: PLC0415 - only the command that is called is imported

    return demo(open_pages=order.open_pages)

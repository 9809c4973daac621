"""`demo` on the command line: it has no options. Imported with the command line: nothing heavy in here."""

from __future__ import annotations

import typer

from worker.terminal.command_options import End


def register(app: typer.Typer, end: End) -> None:
    """Put the command on the command line."""

    @app.command()
    def demo() -> None:
        """Classify handwritten digits, batched and one by one, on a mock broker inside this process."""
        end(_act)


def _act() -> int:
    from worker.tools.demo.command import demo  # noqa: PLC0415 - only the command that is called is imported

    return demo()

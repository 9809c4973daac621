"""The list of commands; the ones of `tools/commands.py` come last. A command's code is imported when it is called.

`terminal/command_end.py` decides how a command ends, and with which exit code.
"""

from __future__ import annotations

import gc
import os
from functools import partial
from typing import Annotated

import typer

from worker.commands import orders
from worker.terminal.command_end import end, make_streams_safe
from worker.tools import commands as tools
from worker.version import VERSION

app = typer.Typer(
    no_args_is_help=True,
    # typer's own tracebacks print local variables, and so the secrets among them.
    pretty_exceptions_enable=False,
    help="Batched ONNX inference from Kafka request topics to a Kafka response topic, nothing lost.",
    epilog="Exit codes: 0 clean, 1 a defect, 2 configuration, 3 drain or watchdog deadline, 4 Kafka refuses us for "
    "good, 5 model or device, 6 rejection limit, 7 a command did only a part of its work.",
)


def main() -> None:
    """Run the command that the process was started with."""
    # All imported objects stay; to look through them took 70 ms of a start (measured 2026). `end` enables it again.
    gc.disable()
    # No plugin is used for the settings, and a search for plugins reads the metadata of every package: 6 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    make_streams_safe()
    app()


def _show_version(is_asked: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    if is_asked:
        typer.echo(f"inference-worker {VERSION}")
        raise typer.Exit


@app.callback()
def before_the_command(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """The options before the command's name."""


orders.register(app, partial(end, imports_on=True), end)
tools.register(app, end)

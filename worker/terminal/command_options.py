"""A command whose options are the fields of one dataclass, so that each option is written down once.

The module that declares them is imported with the command line: it imports nothing heavy. What the command does is
imported when it runs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

Options = TypeVar("Options")
# Runs a command's act and ends the process as it says.
End = Callable[[Callable[[], int]], Any]

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", help="TOML file with the tables kafka, model, state, batching, delivery, telemetry.", metavar="FILE"
    ),
]
Brokers = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", help="The brokers, if not the settings'.", metavar="HOST:PORT,..."),
]
AskedModel = Annotated[
    Path | None,
    typer.Option("--model", help="The ONNX model, if not the settings'.", metavar="FILE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object with all that was found.")]


def add_command(
    app: typer.Typer, name: str, options: Callable[..., Options], act: Callable[[Options], int], end: End
) -> None:
    """`options` is the dataclass; its docstring is what `--help` says of the command.

    A line of it that ends inside a sentence is joined with the next; typer would show it broken there.
    """

    def command(**given: Any) -> None:
        end(lambda: act(options(**given)))

    command.__signature__ = inspect.signature(options, eval_str=True)  # type: ignore[attr-defined]  # typer reads it
    told = re.sub(r"(?<![.\n])\n(?!\n)", " ", inspect.getdoc(options) or "")
    app.command(name, help=told)(command)

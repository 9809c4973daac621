"""A command whose options are the fields of one dataclass, so that each option is written down once.

The module that declares them is imported with the command line: it imports nothing heavy. What the command does is
imported when it runs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from worker.terminal.known_options import KnownOptions

Options = TypeVar("Options")
# Runs a command's act and ends the process as it says; the file is the one that `--config` names.
End = Callable[[Callable[[], int], Path | None], Any]

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


def option(default: Any, told: str, metavar: str | None = None, *names: str, **limits: Any) -> Any:
    """A field's default and what `--help` says of it. `names`: where the field's own, as an option, is not the only."""
    return field(default=default, metadata={"typer": typer.Option(*names, metavar=metavar, help=told, **limits)})


def flag(name: str, told: str) -> Any:
    """A field that is true where this option is given."""
    return option(False, told, None, name)


def argument(default: Any, told: str, metavar: str) -> Any:
    """A field that may be given without an option's name."""
    return field(default=default, metadata={"typer": typer.Argument(metavar=metavar, help=told, show_default=False)})


def add_command(app: typer.Typer, name: str, options: type[Options], act: Callable[[Options], int], end: End) -> None:
    """`options` is the dataclass; its docstring is what `--help` says of the command.

    A line of it that ends inside a sentence is joined with the next; typer would show it broken there.
    """

    def command(**given: Any) -> None:
        end(lambda: act(options(**given)), given.get("config"))

    command.__signature__ = _signature(options)  # type: ignore[attr-defined]  # typer reads it
    told = re.sub(r"(?<![.\n])\n(?!\n)", " ", inspect.getdoc(options) or "")
    app.command(name, cls=KnownOptions, help=told)(command)


def _signature(options: type) -> inspect.Signature:
    found = inspect.signature(options)
    types = get_type_hints(options, include_extras=True)  # those of a base are names of its own module
    for one in fields(options):
        if "typer" in one.metadata:
            types[one.name] = Annotated[types[one.name], one.metadata["typer"]]
    return found.replace(parameters=[each.replace(annotation=types[name]) for name, each in found.parameters.items()])

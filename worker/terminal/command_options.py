"""A command whose options are the fields of one dataclass, so that each option is written down once.

The module that declares them is imported with the command line: it imports nothing heavy. The code of the command is
imported when it runs.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand

Options = TypeVar("Options")
# Runs a command's act, and ends the process with the exit code that it returns.
End = Callable[[Callable[[], int]], Any]

Config = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file with the worker's settings: docs/settings.md.", metavar="FILE"),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting, as often as needed.", metavar="KEY=VALUE", show_default=False),
]
Brokers = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", help="The brokers, if not the settings'.", metavar="HOST:PORT,..."),
]
AskedModel = Annotated[
    Path | None,
    typer.Option("--model", help="The model, if not the settings'.", metavar="FILE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object with all that was found.")]


def option(default: Any, told: str, metavar: str | None = None, *names: str, **limits: Any) -> Any:
    """A field with its default and its line in `--help`. `names`: the option's, where the field's own is not enough."""
    return field(default=default, metadata={"typer": typer.Option(*names, metavar=metavar, help=told, **limits)})


def flag(name: str, told: str) -> Any:
    """A field that is true where this option is given."""
    return option(False, told, None, name)


def argument(default: Any, told: str, metavar: str) -> Any:
    """A field that may be given without an option's name."""
    return field(default=default, metadata={"typer": typer.Argument(metavar=metavar, help=told, show_default=False)})


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The options of `run`, `check` and `init`: the settings that nearly every first start needs.

    They win over the environment, which wins over the file.
    """

    bootstrap_servers: Brokers = None
    requests: str | None = option(None, "Topics to read.", "TOPIC,...")
    answers: str | None = option(None, "The topic for answers.", "TOPIC")
    dead_letters: str | None = option(None, "The topic for the originals of rejected requests.", "TOPIC")
    group: str | None = option(None, "The consumer group.", "GROUP")
    model: AskedModel = None
    assignments: Assignments = None
    config: Config = None

    def over(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment, where the options that were given win. Raises `BadConfiguration`."""
        from worker.settings.names import as_variables  # noqa: PLC0415 - pydantic takes its time

        given = {
            "WORKER_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "WORKER_KAFKA__REQUEST_TOPICS": self.requests,
            "WORKER_KAFKA__RESPONSE_TOPIC": self.answers,
            "WORKER_KAFKA__DEAD_LETTER_TOPIC": self.dead_letters,
            "WORKER_KAFKA__GROUP_ID": self.group,
            "WORKER_MODEL__PATH": self.model,
        }
        texts = {name: str(value) for name, value in given.items() if value is not None}
        return {**environ, **as_variables(self.assignments or ()), **texts}


def add_command(app: typer.Typer, name: str, options: type[Options], act: Callable[[Options], int], end: End) -> None:
    """Add a command. `options` is its dataclass, whose docstring `--help` shows.

    A command that reads settings, and so has `--config`, also takes `--set`, which changes its environment. A line of
    the docstring that ends inside a sentence is joined with the next; typer would show it broken there.
    """
    signature = _signature(options)
    names = signature.parameters.keys()
    takes_sets = "config" in names and not names & {"assignments", "sets"}

    def command(**given: Any) -> None:
        assignments = given.pop("assignments") if takes_sets else None

        def acted() -> int:
            if assignments:
                from worker.settings.names import as_variables  # noqa: PLC0415 - pydantic takes its time

                os.environ.update(as_variables(assignments))
            return act(options(**given))

        end(acted)

    if takes_sets:
        extra = inspect.Parameter("assignments", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Assignments)
        signature = signature.replace(parameters=[*signature.parameters.values(), extra])
    command.__signature__ = signature  # type: ignore[attr-defined]  # typer reads it
    told = re.sub(r"(?<![.\n])\n(?!\n)", " ", inspect.getdoc(options) or "")
    app.command(name, cls=_Command, help=told)(command)


class _Command(TyperCommand):
    """A command that takes `--model FILE` also where MODEL is its first argument."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = [word for arg in args for word in (arg.split("=", 1) if arg.startswith("--model=") else [arg])]
        has_argument = any(isinstance(param, TyperArgument) and param.name == "model" for param in self.params)
        if has_argument and "--model" in args[:-1]:
            at = args.index("--model")
            args = [args[at + 1], *args[:at], *args[at + 2 :]]
        return super().parse_args(ctx, args)


def _signature(options: type) -> inspect.Signature:
    found = inspect.signature(options)
    types = get_type_hints(options, include_extras=True)  # a base class has names of its own module
    for one in fields(options):
        if "typer" in one.metadata:
            types[one.name] = Annotated[types[one.name], one.metadata["typer"]]
    return found.replace(parameters=[each.replace(annotation=types[name]) for name, each in found.parameters.items()])

"""`inference-worker check` on the command line. Imported with the command line: nothing heavy in here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from worker.terminal.command_options import AsJson, End, WorkerOptions, add_command


@dataclass(frozen=True, kw_only=True)
class CheckOrder(WorkerOptions):
    """Look at settings, model and cluster as a worker does before it joins its group, and tell all that is wrong.

    Exits as a worker's start would.
    """

    as_json: AsJson = False
    create_topics: Annotated[
        bool, typer.Option("--create-topics", help="First make the topics that are missing, states compacted.")
    ] = False
    with_example: Annotated[bool, typer.Option("--example", help="Show a request for the model, and its answer.")] = (
        False
    )
    show_all: Annotated[bool, typer.Option("--all", help="Show settings that have their defaults, too.")] = False


def register(app: typer.Typer, end: End) -> None:
    add_command(app, "check", CheckOrder, _act, end)


def _act(order: CheckOrder) -> int:
    from worker.commands.checking import check  # noqa: PLC0415 - only the command that is called is imported

    return check(order)

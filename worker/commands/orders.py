"""`run` and `check` on the command line. Imports nothing heavy: a command's code is imported when it is called."""

from __future__ import annotations

import os
from dataclasses import dataclass

import typer

from worker.terminal.command_options import AsJson, End, WorkerOptions, add_command, flag


@dataclass(frozen=True, kw_only=True)
class RunOrder(WorkerOptions):
    """Serve requests until SIGTERM.

    Every setting is WORKER_<SECTION>__<NAME> in the environment, or a line in --config.
    """


@dataclass(frozen=True, kw_only=True)
class CheckOrder(WorkerOptions):
    """Look at settings, model and cluster as a worker does before it joins its group, and tell all that is wrong.

    Exits as a worker's start would.
    """

    as_json: AsJson = False
    create_topics: bool = flag("--create-topics", "First make the topics that are missing, states compacted.")
    with_example: bool = flag("--example", "Show a request for the model, and its answer.")


def register(app: typer.Typer, end_run: End, end: End) -> None:
    add_command(app, "run", RunOrder, _run, end_run)
    add_command(app, "check", CheckOrder, _check, end)


def _run(order: RunOrder) -> int:
    from worker.app import run  # noqa: PLC0415 - only the command that is called is imported
    from worker.settings import load  # noqa: PLC0415 - see above

    return run(load(order.config, order.over(os.environ)))


def _check(order: CheckOrder) -> int:
    from worker.commands.checking import check  # noqa: PLC0415 - see above

    return check(order)

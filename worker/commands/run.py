"""`inference-worker run` on the command line. What serves is imported when it is called."""

from __future__ import annotations

import os
from dataclasses import dataclass

import typer

from worker.terminal.command_options import End, add_command
from worker.terminal.worker_options import WorkerOptions


@dataclass(frozen=True, kw_only=True)
class RunOrder(WorkerOptions):
    """Serve requests until SIGTERM.

    Every setting is WORKER_<SECTION>__<NAME>, in the environment or in `.env`, or stands in --config.
    """


def register(app: typer.Typer, end: End) -> None:
    add_command(app, "run", RunOrder, _act, end)


def _act(order: RunOrder) -> int:
    from worker.app import run  # noqa: PLC0415 - only the command that is called is imported
    from worker.settings import load  # noqa: PLC0415 - the same
    from worker.settings.dotenv import read_dotenv  # noqa: PLC0415 - the same

    dotenv = read_dotenv(os.environ)
    run(load(order.config, order.over({**dotenv, **os.environ})), dotenv)

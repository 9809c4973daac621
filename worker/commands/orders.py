"""`run` and `check` on the command line. What serves is imported when it is called: nothing heavy in here."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from worker.terminal.command_options import AsJson, End, WorkerOptions, add_command

if TYPE_CHECKING:
    from worker.settings import KafkaSettings


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
    create_topics: Annotated[
        bool, typer.Option("--create-topics", help="First make the topics that are missing, states compacted.")
    ] = False
    with_example: Annotated[bool, typer.Option("--example", help="Show a request for the model, and its answer.")] = (
        False
    )
    show_all: Annotated[bool, typer.Option("--all", help="Show settings that have their defaults, too.")] = False


def register(app: typer.Typer, end_run: End, end: End) -> None:
    add_command(app, "run", RunOrder, _run, end_run)
    add_command(app, "check", CheckOrder, _check, end)


def _run(order: RunOrder) -> int:
    from worker.app import run  # noqa: PLC0415 - only the command that is called is imported
    from worker.settings import load  # noqa: PLC0415 - the same

    settings = load(order.config, order.over(os.environ))
    run(settings, explained_by(order, settings.kafka))


def explained_by(order: RunOrder, kafka: KafkaSettings) -> str:
    """The command that shows why a request was rejected, but for the place or id that is its last word."""
    letters = kafka.dead_letter_topic
    words = ["--topic", letters or kafka.response_topic, "--bootstrap-servers", kafka.bootstrap_servers]
    words += [] if order.config is None else ["--config", str(order.config)]
    command = ["dead-letters", "show", *words] if letters else ["consume", "--last", "1", *words, "--request-id"]
    return shlex.join(["inference-worker", *command])


def _check(order: CheckOrder) -> int:
    from worker.commands.checking import check  # noqa: PLC0415 - the same

    return check(order)

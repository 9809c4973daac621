"""`inference-worker run` on the command line. What serves is imported when it is called."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from worker.terminal.command_options import End, WorkerOptions, add_command

if TYPE_CHECKING:
    from worker.settings import KafkaSettings


@dataclass(frozen=True, kw_only=True)
class RunOrder(WorkerOptions):
    """Serve requests until SIGTERM.

    Every setting is WORKER_<SECTION>__<NAME> in the environment, or a line in --config.
    """


def register(app: typer.Typer, end: End) -> None:
    add_command(app, "run", RunOrder, _act, end)


def _act(order: RunOrder) -> int:
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

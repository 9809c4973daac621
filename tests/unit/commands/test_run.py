"""What `run` says to type next: a command that finds what it speaks of."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from worker.commands.run import RunOrder, explained_by
from worker.settings import load

REQUIRED = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__GROUP_ID": "g",
    "WORKER_MODEL__PATH": "model.onnx",
}
LETTERS = {"WORKER_KAFKA__DEAD_LETTER_TOPIC": "rejected"}


@pytest.mark.parametrize(
    ("environ", "options", "command"),
    [
        (LETTERS, {}, "dead-letters show"),
        ({}, {"dead_letters": "bad"}, "dead-letters show --topic bad"),
        ({}, {"assignments": ["KAFKA__DEAD_LETTER_TOPIC=bad"]}, "dead-letters show --topic bad"),
        (LETTERS, {"bootstrap_servers": "127.0.0.1:1"}, "dead-letters show --bootstrap-servers 127.0.0.1:1"),
        ({}, {}, "consume --last 1 --request-id"),
        ({}, {"answers": "out", "model": "m.onnx"}, "consume --last 1 --topic out --request-id"),
    ],
)
def test_a_rejection_is_shown_by_the_command_that_is_named(
    environ: Mapping[str, str], options: Mapping[str, Any], command: str
) -> None:
    """The letter, or without a dead-letter topic the answer. Options are passed on; the environment is the same."""
    order = RunOrder(**options)
    settings = load(None, order.over({**REQUIRED, **environ}))

    assert shlex.split(explained_by(order, settings.kafka)) == shlex.split(f"inference-worker {command}")

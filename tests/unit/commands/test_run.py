"""What `run` says to type next: a command that finds what it speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from worker.commands.orders import RunOrder, explained_by
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
    ("environ", "command"),
    [(LETTERS, "dead-letters show --topic rejected"), ({}, "consume --last 1 --topic answers")],
)
def test_a_rejection_is_shown_by_the_command_that_is_named(
    environ: Mapping[str, str], command: str, tmp_path: Path
) -> None:
    """The letter, or without a dead-letter topic the answer."""
    (config := tmp_path / "w.toml").write_text("")
    order = RunOrder(config=config)
    settings = load(None, order.over({**REQUIRED, **environ}))

    told = explained_by(order, settings.kafka)

    assert told.startswith(f"inference-worker {command} --bootstrap-servers localhost:9092 --config {config}")
    assert told.endswith(str(config) if environ else "--request-id")

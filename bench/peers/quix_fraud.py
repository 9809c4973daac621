"""Quix Streams on payments in JSON, row by row, as its documents have it: a dataframe, a function on each, a topic.

Left at its defaults: a checkpoint every 5 s, at least once.
"""

from __future__ import annotations

from typing import Any

from quixstreams import Application

from bench.loops.payments import scores
from bench.loops.task import Task


def main() -> None:
    """Run until killed."""
    task = Task.from_command_line()
    answers = scores(task.model)
    app = Application(task.bootstrap, consumer_group=task.group, auto_offset_reset="earliest", loglevel="WARNING")
    requests = app.topic(task.requests, key_deserializer="bytes", value_deserializer="json")
    responses = app.topic(task.responses, key_serializer="bytes", value_serializer="json")

    def answer(payment: Any) -> Any:
        return answers([payment])[0]

    app.dataframe(requests).apply(answer).to_topic(responses)
    app.run()


if __name__ == "__main__":
    main()

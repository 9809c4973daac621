"""Quix Streams, row by row: `apply` the model to each, produce, commit at a checkpoint.

It has no step that works on a batch of messages of all keys: its count windows are of one key each. Left at their
defaults: a checkpoint every 5 s, idempotent producing, the producer's linger.
"""

from __future__ import annotations

from quixstreams import Application

from bench.loops.task import Task, joined, model_call


def main() -> None:
    """Until killed."""
    task = Task.from_command_line()
    run = model_call(task.model, 1)
    app = Application(
        task.bootstrap,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        auto_create_topics=False,
        loglevel="WARNING",
    )
    requests = app.topic(task.requests, key_deserializer="bytes", value_deserializer="bytes")
    responses = app.topic(task.responses, key_serializer="bytes", value_serializer="bytes")
    app.dataframe(requests).apply(lambda value: run(joined([value]))[0].tobytes()).to_topic(responses)
    app.run()


if __name__ == "__main__":
    main()

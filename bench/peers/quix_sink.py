"""Quix Streams with its batching sink: a checkpoint's messages of a partition are inferred in batches.

This is the nearest that it has to batched inference. The sink has its own producer and waits for its deliveries before
the checkpoint commits: at least once. Set: a checkpoint at every 5,000 messages, so that one is worth its cost. Left
at its default: the producer's linger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Producer
from quixstreams import Application
from quixstreams.sinks import BatchingSink, SinkBatch

from bench.loops.task import Task, joined, model_call

CHECKPOINT = 5_000  # messages
# The values of the answers to these messages' values.
Work = Callable[[Sequence[Any]], Sequence[bytes]]


class Answers(BatchingSink):
    """Does the work on a checkpoint's messages, and produces the answers."""

    def __init__(self, task: Task, work: Work) -> None:
        super().__init__()
        self._task = task
        self._work = work
        self._producer = Producer({"bootstrap.servers": task.bootstrap, "enable.idempotence": True})

    def write(self, batch: SinkBatch) -> None:
        """Called by Quix with the messages of one partition."""
        for items in map(list, batch.iter_chunks(self._task.batch)):
            answers = self._work([item.value for item in items])
            for item, answer in zip(items, answers, strict=True):
                self._producer.produce(self._task.responses, answer, item.key)
            self._producer.poll(0)
        self._producer.flush()


def serve(task: Task, work: Work, values: str) -> None:
    """Run until killed. `values` names Quix's deserializer of them."""
    app = Application(
        task.bootstrap,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        auto_create_topics=False,
        commit_every=CHECKPOINT,
        loglevel="WARNING",
    )
    requests = app.topic(task.requests, key_deserializer="bytes", value_deserializer=values)
    app.dataframe(requests).sink(Answers(task, work))
    app.run()


def main() -> None:
    """Run until killed."""
    task = Task.from_command_line()
    run = model_call(task.model, task.batch)
    serve(task, lambda rows: [result.tobytes() for result in run(joined(rows))], "bytes")


if __name__ == "__main__":
    main()

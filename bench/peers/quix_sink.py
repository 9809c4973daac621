"""Quix Streams with its batching sink: a checkpoint's messages of a partition are inferred in batches.

This is the nearest that it has to batched inference. The sink has its own producer and waits for its deliveries before
the checkpoint commits: at least once. Set: a checkpoint at every 5,000 messages, so that one is worth its cost. Left
at its default: the producer's linger.
"""

from __future__ import annotations

from confluent_kafka import Producer
from quixstreams import Application
from quixstreams.sinks import BatchingSink, SinkBatch

from bench.loops.task import Task, joined, model_call

CHECKPOINT = 5_000  # messages


class Answers(BatchingSink):
    """Runs the model on a checkpoint's messages, and produces the answers."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._task = task
        self._run = model_call(task.model, task.batch)
        self._producer = Producer({"bootstrap.servers": task.bootstrap, "enable.idempotence": True})

    def write(self, batch: SinkBatch) -> None:
        """Called by Quix with the messages of one partition."""
        for items in map(list, batch.iter_chunks(self._task.batch)):
            results = self._run(joined([item.value for item in items]))
            for item, result in zip(items, results, strict=True):
                self._producer.produce(self._task.responses, result.tobytes(), item.key)
            self._producer.poll(0)
        self._producer.flush()


def main() -> None:
    """Run until killed."""
    task = Task.from_command_line()
    app = Application(
        task.bootstrap,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        auto_create_topics=False,
        commit_every=CHECKPOINT,
        loglevel="WARNING",
    )
    requests = app.topic(task.requests, key_deserializer="bytes", value_deserializer="bytes")
    app.dataframe(requests).sink(Answers(task))
    app.run()


if __name__ == "__main__":
    main()

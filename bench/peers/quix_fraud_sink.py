"""Quix Streams on payments in JSON, with its batching sink: a checkpoint's messages of a partition in batches.

Set: a checkpoint at every 5,000 messages, so that one is worth its cost. The sink has its own producer and waits for
its deliveries before the checkpoint commits: at least once.
"""

from __future__ import annotations

import orjson
from confluent_kafka import Producer
from quixstreams import Application
from quixstreams.sinks import BatchingSink, SinkBatch

from bench.loops.payments import scores
from bench.loops.task import Task
from bench.peers.quix_sink import CHECKPOINT


class Answers(BatchingSink):
    """Runs the model on a checkpoint's payments, and produces the answers."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._task = task
        self._scores = scores(task.model)
        self._producer = Producer({"bootstrap.servers": task.bootstrap, "enable.idempotence": True})

    def write(self, batch: SinkBatch) -> None:
        """Called by Quix with the messages of one partition."""
        for items in map(list, batch.iter_chunks(self._task.batch)):
            answers = self._scores([item.value for item in items])
            for item, answer in zip(items, answers, strict=True):
                self._producer.produce(self._task.responses, orjson.dumps(answer), item.key)
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
    requests = app.topic(task.requests, key_deserializer="bytes", value_deserializer="json")
    app.dataframe(requests).sink(Answers(task))
    app.run()


if __name__ == "__main__":
    main()

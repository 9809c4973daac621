"""What one writes oneself for a model with state: for each request one read, one run, one write, from the same store.

Consumes in batches, produces with the client's own batching, and commits each second behind a flush: at least once. Its
store is the worker's, without a changelog: when it is killed, its states are gone.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Producer

from tests.bench.loops.task import Task, step_call
from worker.core.records import Partition
from worker.stores import LocalStore

COMMIT_EVERY = 1.0  # seconds
LARGEST = 1 << 20  # of a state, bytes


def main() -> None:
    """Until killed."""
    task = Task.from_command_line()
    run = step_call(task.model)
    store = LocalStore(Path(tempfile.mkdtemp()), LARGEST)
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.subscribe([task.requests])
    producer = Producer({"bootstrap.servers": task.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    next_commit = time.monotonic() + COMMIT_EVERY
    while True:
        for message in consumer.consume(500, 0.1):
            partition, key = Partition(task.requests, message.partition() or 0), message.key() or b""
            [before] = store.get(partition, [key])
            answer, after = run(message.value() or b"", None if before is None else np.frombuffer(before, "<f4"))
            store.put(partition, [key], [after.tobytes()])
            producer.produce(task.responses, answer, key)
        producer.poll(0)
        if time.monotonic() > next_commit:
            producer.flush()
            consumer.commit(asynchronous=False)
            next_commit = time.monotonic() + COMMIT_EVERY


if __name__ == "__main__":
    main()

"""What one writes oneself for a model with state: for each request one read, one run, one write, from the same store.

Consumes in batches, produces with the client's own batching, and commits each second behind a flush: at least once. Its
store is the worker's, without a changelog: when it is killed, its states are gone.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests.bench.local_states import LocalStates
from tests.bench.loops.task import Task, step_call
from worker.core.records import Partition

COMMIT_EVERY = 1.0  # seconds


def main() -> None:
    """Until killed."""
    task = Task.from_command_line()
    run = step_call(task.model)
    states: LocalStates | None = None
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
            before = None if states is None else states.read(partition, [key])[0]
            answer, after = run(message.value() or b"", before)
            states = states or LocalStates(Path(tempfile.mkdtemp()), len(after))
            states.write(partition, [key], after[None])
            producer.produce(task.responses, answer, key)
        producer.poll(0)
        if time.monotonic() > next_commit:
            producer.flush()
            consumer.commit(asynchronous=False)
            next_commit = time.monotonic() + COMMIT_EVERY


if __name__ == "__main__":
    main()

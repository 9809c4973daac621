"""The loop that people write for a model with state: one read, one inference and one write for each request.

It consumes in batches, produces with the client's own batching, and commits each second after a flush: at least once.
Its states are in a dict, so a kill loses them.
"""

from __future__ import annotations

import time

from bench.loops.by_hand import clients
from bench.loops.task import Floats, Task, step_call

COMMIT_EVERY = 1.0  # seconds


def main() -> None:
    """Run until killed."""
    task = Task.from_command_line()
    run = step_call(task.model)
    states: dict[bytes, Floats] = {}
    consumer, producer = clients(task, {"fetch.queue.backoff.ms": 5}, {"linger.ms": 5})
    next_commit = time.monotonic() + COMMIT_EVERY
    while True:
        for message in consumer.consume(500, 0.1):
            key = message.key() or b""
            answer, states[key] = run(message.value() or b"", states.get(key))
            producer.produce(task.responses, answer, key)
        producer.poll(0)
        if time.monotonic() > next_commit:
            producer.flush()
            consumer.commit(asynchronous=False)
            next_commit = time.monotonic() + COMMIT_EVERY


if __name__ == "__main__":
    main()

"""The hand loop for texts of ragged lengths: each batch is what came, padded to the longest of it.

consume(n) → parse → pad → run → cut back → produce → flush → commit. At least once, because nothing overlaps.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests.bench.loops.task import Task
from tests.ragged import Alone, as_answer, cut, row_of

WAIT = 0.1  # seconds


def run(task: Task, consumer: Consumer, producer: Producer) -> None:
    """Until killed."""
    model = Alone(Path(task.model))
    while True:
        messages = consumer.consume(task.batch, WAIT)
        if not messages:
            continue
        rows = [row_of(message.value() or b"") for message in messages]
        results = model.run(rows, max(map(len, rows)))
        for at, (message, row) in enumerate(zip(messages, rows, strict=True)):
            producer.produce(task.responses, as_answer(cut(results, at, len(row))), message.key())
        producer.flush()
        consumer.commit(asynchronous=False)

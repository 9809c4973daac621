"""The floor: what must be done for a good request, and nothing else, as fast as it can be written by hand.

```
consume k+1 ─▶ wait for inference k ─▶ start inference k+1 ─▶ produce answers k, three headers ─▶ reports, commit
```

A thread infers a batch while the loop produces the answers to the last one and consumes the next. Offsets are committed
when all answers to 20,000 requests are delivered. It judges no request, answers no error, keeps no order when a batch
fails, and knows nothing of rebalances or of stopping.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from queue import SimpleQueue

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.loops.task import Floats, Run, Task, joined, model_call

COMMIT_EVERY = 20_000  # records
MOST_UNSENT = 50_000  # the client's own queue takes 100,000
WAIT = 0.1  # seconds


class Epoch:
    """Records that are committed together, when the last of their answers is delivered."""

    def __init__(self) -> None:
        self.size = 0
        self.delivered = 0
        self.ends: dict[tuple[str, int], int] = {}

    def report(self, error: KafkaError | None, _message: Message) -> None:
        """The producer's delivery report of one answer."""
        assert error is None, error
        self.delivered += 1


class Floor:
    """The loop. Owns the inference thread."""

    def __init__(self, task: Task, consumer: Consumer, producer: Producer) -> None:
        self._task = task
        self._consumer = consumer
        self._producer = producer
        self._waiting: SimpleQueue[Floats] = SimpleQueue()
        self._done: SimpleQueue[Floats] = SimpleQueue()
        self._epochs = deque([Epoch()])
        threading.Thread(target=self._infer, args=(model_call(task.model, task.batch),), daemon=True).start()

    def run(self) -> None:
        """For ever."""
        gc.set_threshold(50_000, 20, 100)  # as the worker does
        running: list[Message] = []
        while True:
            messages = self._consumer.consume(self._task.batch, WAIT)
            results = self._done.get() if running else None
            if messages:
                self._waiting.put(joined([m.value() or b"" for m in messages]))
            if results is not None:
                self._answer(running, results)
            running = messages
            self._producer.poll(0)
            self._commit()

    def _infer(self, run: Run) -> None:
        while True:
            self._done.put(run(self._waiting.get()))

    def _answer(self, messages: list[Message], results: Floats) -> None:
        produce, topic, epoch = self._producer.produce, self._task.responses, self._epochs[-1]
        while len(self._producer) > MOST_UNSENT:
            self._producer.poll(WAIT)
        for message, result in zip(messages, results, strict=True):
            source, partition, offset = message.topic(), message.partition(), message.offset()
            produce(
                topic,
                result.tobytes(),
                message.key(),
                on_delivery=epoch.report,
                headers=[
                    ("content-type", b"application/octet-stream"),
                    ("status", b"ok"),
                    ("source", f"{source}/{partition}/{offset}".encode()),
                ],
            )
            epoch.ends[source, partition] = offset + 1  # type: ignore[index, operator]  # no error: it has them
        epoch.size += len(messages)
        if epoch.size >= COMMIT_EVERY:
            self._epochs.append(Epoch())

    def _commit(self) -> None:
        first = self._epochs[0]
        if len(self._epochs) > 1 and first.delivered == first.size:
            self._epochs.popleft()
            offsets = [TopicPartition(topic, number, end) for (topic, number), end in first.ends.items()]
            self._consumer.commit(offsets=offsets, asynchronous=True)


def floor(task: Task, consumer: Consumer, producer: Producer) -> None:
    """Until killed."""
    Floor(task, consumer, producer).run()

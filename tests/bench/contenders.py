"""Loops that the worker is compared with, from what one writes in an afternoon to the least that can be done at all.

    python -m tests.bench.contenders NAME BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH

pass_through  consumes, produces an answer of the right size. No inference, no look at reports, no commit.
floor         does what must be done, for good requests alone: one batch infers while the last one is produced; three
              headers, as the worker's answers have; delivery reports; commits of what is delivered.
              Judges no request, answers no error, and knows nothing of rebalances or of stopping.
hand_loop     consume, run, produce, flush, commit: safe, because nothing overlaps. No headers.
one_by_one    a record, an inference, an answer; offsets are committed in the background, whatever became of it.

All run until they are killed.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import deque
from queue import SimpleQueue

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.bench.task import Floats, Run, Task, joined, model_call

ANSWER = bytes(64)  # as long as the model's answer to one row: 16 floats
COMMIT_EVERY = 20_000  # records
MOST_UNSENT = 50_000  # the client's own queue takes 100,000
WAIT = 0.1  # seconds

# The worker's own fetch settings: with the client's defaults a fast loop starves for a second whenever the client has
# read 64 MB ahead.
FAST_FETCH = {"queued.min.messages": 5_000, "queued.max.messages.kbytes": 32 * 1024, "fetch.queue.backoff.ms": 20}


def pass_through(task: Task, consumer: Consumer, producer: Producer) -> None:
    """Consume, produce something: no inference, no look at reports, no commit."""
    while True:
        for message in consumer.consume(1000, WAIT):
            while True:
                try:
                    producer.produce(task.responses, ANSWER, message.key())
                except BufferError:
                    producer.poll(0.01)
                else:
                    break
        producer.poll(0)


def hand_loop(task: Task, consumer: Consumer, producer: Producer) -> None:
    """consume(n) → run → produce → flush → commit."""
    run = model_call(task)
    while True:
        messages = consumer.consume(task.batch, WAIT)
        if not messages:
            continue
        results = run(joined([m.value() or b"" for m in messages]))
        for message, result in zip(messages, results, strict=True):
            producer.produce(task.responses, result.tobytes(), message.key())
        producer.flush()
        consumer.commit(asynchronous=False)


def one_by_one(task: Task, consumer: Consumer, producer: Producer) -> None:
    """One record, one inference, one answer; offsets are committed by the client in the background."""
    run = model_call(task)
    while True:
        message = consumer.poll(WAIT)
        if message is None:
            continue
        result = run(joined([message.value() or b""]))
        producer.produce(task.responses, result[0].tobytes(), message.key())
        producer.poll(0)


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
    """Consume the next batch while a thread infers the last one, and produce the one before that."""

    def __init__(self, task: Task, consumer: Consumer, producer: Producer) -> None:
        self._task = task
        self._consumer = consumer
        self._producer = producer
        self._waiting: SimpleQueue[Floats] = SimpleQueue()
        self._done: SimpleQueue[Floats] = SimpleQueue()
        self._epochs = deque([Epoch()])
        threading.Thread(target=self._infer, args=(model_call(task),), daemon=True).start()

    def run(self) -> None:
        """For ever."""
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
        produce, topic, report = self._producer.produce, self._task.responses, self._epochs[-1].report
        ends = self._epochs[-1].ends
        while len(self._producer) > MOST_UNSENT:
            self._producer.poll(WAIT)
        for message, result in zip(messages, results, strict=True):
            source, partition, offset = message.topic(), message.partition(), message.offset()
            produce(
                topic,
                result.tobytes(),
                message.key(),
                on_delivery=report,
                headers=[
                    ("content-type", b"application/octet-stream"),
                    ("status", b"ok"),
                    ("source", f"{source}/{partition}/{offset}".encode()),
                ],
            )
            ends[source, partition] = offset + 1  # type: ignore[index, operator]  # a message without an error has all
        self._epochs[-1].size += len(messages)
        if self._epochs[-1].size >= COMMIT_EVERY:
            self._epochs.append(Epoch())

    def _commit(self) -> None:
        first = self._epochs[0]
        if len(self._epochs) > 1 and first.delivered == first.size:
            self._epochs.popleft()
            offsets = [TopicPartition(topic, number, end) for (topic, number), end in first.ends.items()]
            self._consumer.commit(offsets=offsets, asynchronous=True)


def floor(task: Task, consumer: Consumer, producer: Producer) -> None:
    """The hand-written pipeline that does what must be done, for good requests alone."""
    gc.set_threshold(50_000, 20, 100)  # as the worker does
    Floor(task, consumer, producer).run()


LOOPS = {"pass_through": pass_through, "floor": floor, "hand_loop": hand_loop, "one_by_one": one_by_one}
FETCH_FAST = ("pass_through", "floor")


def main() -> None:
    """Run one of them until killed."""
    name, task = sys.argv[1], Task.from_command_line()
    servers = {"bootstrap.servers": task.bootstrap}
    own = {"group.id": task.group, "enable.auto.commit": name == "one_by_one", "auto.offset.reset": "earliest"}
    consumer = Consumer(servers | own | (FAST_FETCH if name in FETCH_FAST else {}))
    consumer.subscribe(task.requests.split(","))
    producer = Producer(servers | {"enable.idempotence": True, "partitioner": "murmur2_random"})
    LOOPS[name](task, consumer, producer)


if __name__ == "__main__":
    main()

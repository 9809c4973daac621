"""Loops for comparison with the worker, from an afternoon's work down to the least that a loop can do.

    python -m bench.loops.by_hand NAME BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH RATE

They run until they are killed. None of them handles bad input, keeps order across failures, or knows how to stop.
`ABOUT` describes each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer

from bench.loops.task import Task, joined, model_call

ANSWER = bytes(64)  # as long as the model's answer to one row: 16 floats
WAIT = 0.1  # seconds

ABOUT = {
    "pass_through": "consumes, produces an answer of the right size; no inference, no look at reports, no commit",
    "echo": "a pass-through of one record at a time, sent at once (linger.ms 0): the least latency that there is",
    "hand_loop": "consume, run, produce, flush, commit: at least once, because nothing overlaps; no headers",
    "one_by_one": "a record, an inference, an answer; commits in the background, whatever became of the answer",
    "one_by_one_eager": "one_by_one with linger.ms 0",
}


def pass_through(task: Task, consumer: Consumer, producer: Producer) -> None:
    """Consume, and produce an answer of the right size, no faster than the task's rate."""
    began, passed = time.monotonic(), 0
    while True:
        most = min(1000, int((time.monotonic() - began) * task.rate) - passed) if task.rate else 1000
        if most <= 0:
            time.sleep(0.001)
            continue
        for message in consumer.consume(most, WAIT):
            while not _sent(producer, task.responses, message.key()):
                producer.poll(0.01)
            passed += 1
        producer.poll(0)


def _sent(producer: Producer, topic: str, key: bytes | str | None) -> bool:
    try:
        producer.produce(topic, ANSWER, key)
    except BufferError:
        return False
    return True


def echo(task: Task, consumer: Consumer, producer: Producer) -> None:
    """Consume one record, produce one answer, at once."""
    while True:
        message = consumer.poll(WAIT)
        if message is not None:
            producer.produce(task.responses, ANSWER, message.key())
        producer.poll(0)


def hand_loop(task: Task, consumer: Consumer, producer: Producer) -> None:
    """consume(n) → run → produce → flush → commit."""
    run = model_call(task.model, task.batch)
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
    """Take one record, run one inference, produce one answer."""
    run = model_call(task.model, 1)
    while True:
        message = consumer.poll(WAIT)
        if message is not None:
            result = run(joined([message.value() or b""]))
            producer.produce(task.responses, result[0].tobytes(), message.key())
        producer.poll(0)


LOOPS: dict[str, Callable[[Task, Consumer, Producer], None]] = {
    "pass_through": pass_through,
    "echo": echo,
    "hand_loop": hand_loop,
    "one_by_one": one_by_one,
    "one_by_one_eager": one_by_one,
}
# The worker's own fetch settings, for loops that must not be held back: with the client's defaults a fast loop starves
# for a second each time the client has read 64 MB ahead.
FAST = ("pass_through", "echo")
FAST_FETCH = {"queued.min.messages": 5_000, "queued.max.messages.kbytes": 32 * 1024, "fetch.queue.backoff.ms": 20}
# These loops send each answer at once. The others, like the worker, have the client's default linger of 5 ms.
EAGER = ("echo", "one_by_one_eager")


def main() -> None:
    """Run one of the loops until killed."""
    name, task = sys.argv[1], Task.from_command_line()
    servers = {"bootstrap.servers": task.bootstrap}
    commits = {"enable.auto.commit": LOOPS[name] is one_by_one, "auto.offset.reset": "earliest"}
    consumer = Consumer(servers | {"group.id": task.group} | commits | (FAST_FETCH if name in FAST else {}))
    consumer.subscribe(task.requests.split(","))
    sends = {"enable.idempotence": True, "partitioner": "murmur2_random"}
    producer = Producer(servers | sends | ({"linger.ms": 0} if name in EAGER else {}))
    LOOPS[name](task, consumer, producer)


if __name__ == "__main__":
    main()

"""Loops for comparison with the worker, from an afternoon's work down to the least that a loop can do.

    python -m bench.loops.by_hand NAME BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH RATE

They run until they are killed. None of them handles bad input, keeps order across failures, or knows how to stop.
`ABOUT` describes each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, Message, Producer

from bench.loops.task import Task, joined, model_call

ANSWER = bytes(64)  # as long as the model's answer to one row: 16 floats
WAIT = 0.1  # seconds
Answers = Callable[[Sequence[Message]], Sequence[bytes]]
Config = Mapping[str, object]

ABOUT = {
    "pass_through": "consumes, produces an answer of the right size; no inference, no look at reports, no commit",
    "echo": "a pass-through of one record at a time, sent at once (linger.ms 0): the least latency that there is",
    "hand_loop": "consume, run, produce, flush, commit: at least once, because nothing overlaps; no headers",
    "one_by_one": "a record, an inference, an answer; commits in the background, whatever became of the answer",
    "one_by_one_eager": "one_by_one with linger.ms 0",
}


def pass_through(task: Task, _run: Answers, consumer: Consumer, producer: Producer) -> None:
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


def echo(task: Task, _run: Answers, consumer: Consumer, producer: Producer) -> None:
    """Consume one record, produce one answer, at once."""
    while True:
        message = consumer.poll(WAIT)
        if message is not None:
            producer.produce(task.responses, ANSWER, message.key())
        producer.poll(0)


def hand_loop(task: Task, run: Answers, consumer: Consumer, producer: Producer) -> None:
    """consume(n) → run → produce → flush → commit."""
    while True:
        messages = consumer.consume(task.batch, WAIT)
        if not messages:
            continue
        for message, answer in zip(messages, run(messages), strict=True):
            producer.produce(task.responses, answer, message.key())
        producer.flush()
        consumer.commit(asynchronous=False)


def one_by_one(task: Task, run: Answers, consumer: Consumer, producer: Producer) -> None:
    """Take one record, run one inference, produce one answer."""
    while True:
        message = consumer.poll(WAIT)
        if message is not None:
            producer.produce(task.responses, run([message])[0], message.key())
        producer.poll(0)


LOOPS: dict[str, Callable[[Task, Answers, Consumer, Producer], None]] = {
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


def clients(task: Task, consuming: Config, producing: Config) -> tuple[Consumer, Producer]:
    """Makes the clients of a loop, which commits by itself unless told otherwise."""
    servers = {"bootstrap.servers": task.bootstrap}
    starts = {"group.id": task.group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**servers, **starts, **consuming})
    consumer.subscribe(task.requests.split(","))
    sends = {"enable.idempotence": True, "partitioner": "murmur2_random"}
    return consumer, Producer({**servers, **sends, **producing})


def run_loop(name: str, task: Task, run: Answers) -> None:
    """Run a loop until killed."""
    consuming = {"enable.auto.commit": LOOPS[name] is one_by_one, **(FAST_FETCH if name in FAST else {})}
    LOOPS[name](task, run, *clients(task, consuming, {"linger.ms": 0} if name in EAGER else {}))


def main() -> None:
    """Run one of the loops on plain rows."""
    task = Task.from_command_line()
    run = model_call(task.model, task.batch)

    def answers(messages: Sequence[Message]) -> list[bytes]:
        return [row.tobytes() for row in run(joined([message.value() or b"" for message in messages]))]

    run_loop(sys.argv[1], task, answers)


if __name__ == "__main__":
    main()

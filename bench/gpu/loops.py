"""The loops that people write by hand, on a device and for any network that is measured here.

    python -m bench.gpu.loops NAME DEVICE NETWORK PRECISION BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH RATE

Both run until they are killed. They check nothing, keep no order if something fails, and do not know how to stop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer

from bench.gpu.networks import NETWORKS, Network
from bench.gpu.sessions import opened
from bench.loops.task import Task

WAIT = 0.1  # seconds
Answers = Callable[[Sequence[Message]], Sequence[bytes]]


def model_call(network: Network, model: str, device: str, batch: int) -> Answers:
    """Returns a call that answers messages with one inference. It is warm with one row and with a batch."""
    session = opened(Path(model), device)

    def run(messages: Sequence[Message]) -> Sequence[bytes]:
        outputs = session.run(None, dict(network.form.batch([message.value() or b"" for message in messages])))
        return [b"".join(output[at].tobytes() for output in outputs) for at in range(len(messages))]

    for rows in (1, batch):
        session.run(None, dict(network.feeds(rows)))
    return run


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
    """Take one record, run one inference, produce one answer. The client commits in the background."""
    while True:
        message = consumer.poll(WAIT)
        if message is not None:
            producer.produce(task.responses, run([message])[0], message.key())
        producer.poll(0)


LOOPS = {"hand_loop": hand_loop, "one_by_one": one_by_one}


def main() -> None:
    """Run one of the loops until killed."""
    name, device, called, precision = sys.argv[1:5]
    task = Task.from_command_line()
    network = next(each for each in NETWORKS if (each.name, each.precision) == (called, precision))
    servers = {"bootstrap.servers": task.bootstrap}
    commits = {"enable.auto.commit": name == "one_by_one", "auto.offset.reset": "earliest"}
    run = model_call(network, task.model, device, task.batch)
    consumer = Consumer(servers | {"group.id": task.group} | commits)
    consumer.subscribe([task.requests])
    LOOPS[name](task, run, consumer, Producer(servers | {"enable.idempotence": True}))


if __name__ == "__main__":
    main()

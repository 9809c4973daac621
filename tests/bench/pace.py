"""Requests at a steady pace, and how long each waits until its answer can be read.

Publisher and reader are processes of their own, so that neither holds the other up. A request carries the instant it
was sent at in `correlation-id`, which the worker echoes; both read the clock that a machine's processes share. The
reader reads committed answers alone, whatever the worker's guarantee is.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import cast

import numpy as np
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as At
from numpy.typing import NDArray

from tests.bench.ground import HEADERS, PARTITIONS, WIDTH

TICK = 0.001  # the pace's unit, seconds
GIVE_UP = 60.0  # seconds without the last answer
SENT_AT = "correlation-id"

Floats = NDArray[np.float64]


def latencies(bootstrap: str, requests: str, responses: str, rate: int, seconds: float) -> Floats:
    """Seconds from sending to reading of each request, in the order of their answers."""
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    count = round(rate * seconds)
    reader = processes.Process(target=_read, args=(theirs, bootstrap, responses, count), daemon=True)
    publisher = processes.Process(target=_publish, args=(bootstrap, requests, rate, count), daemon=True)
    reader.start()
    assert ours.recv() == "ready"
    publisher.start()
    assert ours.poll(seconds + GIVE_UP), f"not all of {count} answers after {seconds + GIVE_UP} s"
    found: Floats = ours.recv()
    publisher.join()
    reader.join()
    return found


def append_times(bootstrap: str, topic: str) -> Floats:
    """When the broker appended each record that can be read now, sorted; seconds since the epoch, to the millisecond.

    The topic stamps its records itself (`message.timestamp.type=LogAppendTime`).
    """
    times = []
    for message in _messages(bootstrap, topic):
        if message is None:
            break
        kind, milliseconds = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        times.append(milliseconds / 1000)
    return np.sort(np.array(times))


def _publish(bootstrap: str, topic: str, rate: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True})
    rows = np.random.default_rng(3).standard_normal((1000, WIDTH), dtype=np.float32)
    values = [row.tobytes() for row in rows]
    sent, began = 0, time.monotonic()
    while sent < count:
        due = min(count, int((time.monotonic() - began) * rate))
        for number in range(sent, due):
            headers: list[tuple[str, str | bytes | None]] = [*HEADERS, (SENT_AT, b"%d" % time.monotonic_ns())]
            producer.produce(
                topic, values[number % 1000], b"k%d" % (number % 997), number % PARTITIONS, headers=headers
            )
        sent = due
        producer.poll(TICK)
    assert producer.flush(GIVE_UP) == 0


def _read(line: Connection, bootstrap: str, topic: str, count: int) -> None:
    waited: list[float] = []
    for message in _messages(bootstrap, topic):
        if message is None:
            line.send("ready")
            continue
        now = time.monotonic_ns()
        headers = cast("list[tuple[str, bytes]]", message.headers())
        waited.append((now - int(dict(headers)[SENT_AT])) / 1e9)
        if len(waited) == count:
            break
    line.send(np.array(waited))


def _messages(bootstrap: str, topic: str) -> Iterator[Message | None]:
    """What is committed, from the beginning and for ever; None when all that was there has been read, once."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([At(topic, number, 0) for number in range(PARTITIONS)])
    unread = set(range(PARTITIONS))
    try:
        while True:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                yield message
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif unread:
                unread.discard(message.partition())
                if not unread:
                    yield None
    finally:
        consumer.close()

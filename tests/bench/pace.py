"""Requests at a steady pace, and how long each waits until its answer can be read; and the most that comes through.

Publisher and reader are processes of their own, so that neither holds the other up. A request's key is the instant at
which it was due, not that at which it was sent: a publisher that falls behind hides nothing. Every contender echoes the
key; all read the clock that a machine's processes share. The reader reads committed answers alone, whatever the
worker's guarantee is.
"""

from __future__ import annotations

import multiprocessing
import time
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as At
from numpy.typing import NDArray

from tests.bench.ground import HEADERS, PARTITIONS, Headers, raw_values

TICK = 0.001  # the pace's unit, seconds
SECOND = 1_000_000_000  # ns
OUTSTANDING = 4096  # requests of a closed loop
GIVE_UP = 60.0  # seconds without the last answer
# The publisher's, ms. At 0 the thread of an idempotent librdkafka 2.16 client never rests: half of a core at 37,000
# requests a second, which is then missing where it is to be measured; at 2 it is a tenth (measured).
LINGER = 2
AT_ONCE = 1000  # messages that the reader takes from its client together

Floats = NDArray[np.float64]
Answered: TypeAlias = "Synchronized[int]"
Dues = Sequence[int]  # ns after the beginning, ascending


class Verdict(NamedTuple):
    """The error code of an answer, empty for a result; when the broker appended it, seconds since the epoch."""

    code: str
    appended_at: float


Judge: TypeAlias = Callable[[Message], Verdict]


class Answers(NamedTuple):
    """In the order in which they were read, seconds: from due to read, the instant (monotonic); verdicts if wanted."""

    waited: Floats
    read_at: Floats
    verdicts: Sequence[Verdict]


def latencies(bootstrap: str, requests: str, responses: str, rate: int, seconds: float) -> Floats:
    """Seconds from due to read of each request, in the order of their answers. Older answers do not count."""
    return _exchange(bootstrap, requests, responses, _steady(rate, seconds)).waited


def latencies_of(bootstrap: str, requests: str, responses: str, dues: Floats) -> Floats:
    """The same for requests that are due so many ascending seconds after the beginning."""
    return _exchange(bootstrap, requests, responses, [round(due * SECOND) for due in dues.tolist()]).waited


def most(bootstrap: str, requests: str, responses: str, count: int) -> float:
    """Answers per second of so many requests when some are always outstanding; the first half warms up."""
    last = _exchange(bootstrap, requests, responses, None, count).read_at[count // 2 :]
    return (len(last) - 1) / float(last[-1] - last[0])


def judged(bootstrap: str, requests: str, responses: str, rate: int, seconds: float, headers: Headers) -> Answers:
    """Every answer to requests with such headers, with its verdict. The response topic stamps its records itself."""
    return _exchange(bootstrap, requests, responses, _steady(rate, seconds), headers=headers, judge=verdict)


def verdict(message: Message) -> Verdict:
    """Of one answer."""
    kind, milliseconds = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    headers = cast("list[tuple[str, bytes]]", message.headers() or [])
    return Verdict(dict(headers).get("error-code", b"").decode(), milliseconds / 1000)


def _steady(rate: int, seconds: float) -> Dues:
    return [number * SECOND // rate for number in range(round(rate * seconds))]


def _exchange(
    bootstrap: str,
    requests: str,
    responses: str,
    dues: Dues | None,
    count: int = 0,
    *,
    headers: Headers = HEADERS,
    judge: Judge | None = None,
) -> Answers:
    """Requests that are due then, and their answers. Without any: so many, in a closed loop."""
    count = count if dues is None else len(dues)
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    answered = processes.Value("q", 0)
    reader = processes.Process(target=_read, args=(theirs, answered, bootstrap, responses, count, judge), daemon=True)
    asked = (answered, bootstrap, requests, dues, count, headers)
    publisher = processes.Process(target=_publish, args=asked, daemon=True)
    reader.start()
    assert ours.recv() == "ready"
    publisher.start()
    most_seconds = GIVE_UP + (dues[-1] / SECOND if dues else 0)
    assert ours.poll(most_seconds), f"not all of {count} answers after {most_seconds:.0f} s"
    found: Answers = ours.recv()
    publisher.join()
    reader.join()
    return found


def append_times(bootstrap: str, topic: str) -> Floats:
    """When the broker appended each record that can be read now, sorted; seconds since the epoch, to the millisecond.

    The topic stamps its records itself (`message.timestamp.type=LogAppendTime`).
    """
    times = []
    for messages in _messages(bootstrap, topic):
        if messages is None:
            break
        for message in messages:
            kind, milliseconds = message.timestamp()
            assert kind == TIMESTAMP_LOG_APPEND_TIME
            times.append(milliseconds / 1000)
    return np.sort(np.array(times))


def _publish(answered: Answered, bootstrap: str, topic: str, dues: Dues | None, count: int, headers: Headers) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": LINGER, "enable.idempotence": True})
    values, sent, began = raw_values(), 0, time.monotonic_ns()
    while sent < count:
        now = time.monotonic_ns()
        due = min(count, answered.value + OUTSTANDING) if dues is None else bisect(dues, now - began)
        for number in range(sent, due):
            at = now if dues is None else began + dues[number]
            producer.produce(topic, values[number % 1000], b"%d" % at, number % PARTITIONS, headers=list(headers))
        sent = due
        producer.poll(TICK)
    assert producer.flush(GIVE_UP) == 0


def _read(line: Connection, answered: Answered, bootstrap: str, topic: str, count: int, judge: Judge | None) -> None:
    waited: list[float] = []
    read_at: list[float] = []
    verdicts: list[Verdict] = []
    is_ready = False
    for messages in _messages(bootstrap, topic):
        if messages is None:
            is_ready = True
            line.send("ready")
        elif is_ready:
            now = time.monotonic_ns()
            waited += [(now - int(message.key() or b"")) / SECOND for message in messages]
            read_at += [now / SECOND] * len(messages)
            verdicts += map(judge, messages) if judge else ()
            answered.value = len(waited)
            if len(waited) >= count:
                break
    line.send(Answers(np.array(waited), np.array(read_at), verdicts))


def _messages(bootstrap: str, topic: str) -> Iterator[Sequence[Message] | None]:
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
            first = consumer.poll(1.0)
            taken = [] if first is None else [first, *consumer.consume(AT_ONCE, 0)]
            if messages := [message for message in taken if not _is_end(message, unread)]:
                yield messages
            if not unread:
                unread = {-1}
                yield None
    finally:
        consumer.close()


def _is_end(message: Message, unread: set[int]) -> bool:
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    if error is not None:
        unread.discard(message.partition() or 0)
    return error is not None

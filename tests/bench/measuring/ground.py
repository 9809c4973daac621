"""What every measurement stands on: requests that lie in topics before, fresh response topics, looks at their ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from confluent_kafka import KafkaException

from tests.kafka.cluster import Cluster, Sent, fresh

WIDTH = 256
PARTITIONS = 4
LOOK_EVERY = 0.05  # seconds; a look costs the broker about a millisecond
GIVE_UP = 120.0  # seconds without the last answer
Values = Sequence[bytes]
Headers = Sequence[tuple[str, bytes | None]]
HEADERS: Headers = [("content-type", b"application/octet-stream")]


@dataclass(frozen=True, slots=True)
class Job:
    """What a contender is to do. `settings` are the worker's, on top of `settings()`; other contenders have none."""

    cluster: Cluster
    requests: Sequence[str]
    model: Path
    batch: int
    settings: Mapping[str, str] = field(default_factory=dict)


def raw_values() -> Values:
    """A thousand different rows of random floats, 1 KiB each."""
    return [row.tobytes() for row in np.random.default_rng(3).standard_normal((1000, WIDTH), dtype=np.float32)]


def fill(
    cluster: Cluster,
    count: int,
    values: Values | None = None,
    headers: Headers = HEADERS,
    *,
    partitions: int = PARTITIONS,
) -> str:
    """A topic with so many keyed requests, raw rows unless told otherwise, spread evenly over its partitions."""
    topic = cluster.create_topic("bench-requests", partitions=partitions)
    publish(cluster, topic, count, values or raw_values(), headers, partitions=partitions)
    return topic


def publish(
    cluster: Cluster, topic: str, count: int, values: Values, headers: Headers, *, partitions: int = PARTITIONS
) -> None:
    """So many more into a topic."""
    requests = (Sent(b"key-%d" % (n % 997), values[n % len(values)], headers, n % partitions) for n in range(count))
    cluster.produce(topic, requests, {"linger.ms": "20", "batch.size": "500000"})


def settings(cluster: Cluster, requests: str, responses: str, model: Path, batch: int = 64) -> dict[str, str]:
    """The worker's: defaults but for the batch, on the CPU."""
    return {
        "KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "KAFKA__REQUEST_TOPICS": requests,
        "KAFKA__RESPONSE_TOPIC": responses,
        "KAFKA__GROUP_ID": fresh("bench"),
        "MODEL__PATH": str(model),
        "MODEL__DEVICE": "cpu",
        "BATCHING__MAX_BATCH_SIZE": str(batch),
    }


@contextmanager
def response_topic(
    cluster: Cluster, *, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A fresh one, deleted in the end."""
    topic = cluster.create_topic("bench-responses", partitions=partitions, config=config)
    try:
        yield topic
    finally:
        cluster.delete_topic(topic)


def there(cluster: Cluster, topic: str) -> int:
    """How many records a topic holds. A broker short of breath is asked again."""
    deadline = time.monotonic() + GIVE_UP
    while True:
        try:
            return sum(cluster.end_offsets(topic).values())
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_EVERY)


def wait_for(cluster: Cluster, topic: str, count: int, why_dead: Callable[[], str | None] = lambda: None) -> int:
    """Until there are so many records; how many there are. Fails when the contender is dead or too slow."""
    deadline = time.monotonic() + GIVE_UP
    while (now := there(cluster, topic)) < count:
        if reason := why_dead():
            raise AssertionError(reason)
        assert time.monotonic() < deadline, f"{now} of {count} answers after {GIVE_UP} s"
        time.sleep(LOOK_EVERY)
    return now

"""The means of every measurement: filled request topics, fresh response topics, models, and a case's order."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaException

from tests.kafka.cluster import Cluster, Sent, fresh
from tests.models import mlp, save

WORKER, NATIVE = "worker", "native"
ROOT = Path(__file__).parents[1]
MAPPINGS = ROOT / "bench" / "mappings"  # what a user of records writes
WIDTH, OUTPUTS = 256, 16
SMALL, DEAR = (WIDTH,), (2048, 2048, 2048)  # hidden layers
PARTITIONS = 4
LOOK_EVERY = 0.05  # seconds; a look costs the broker about a millisecond
GIVE_UP = 120.0  # seconds without the last answer
Values = Sequence[bytes]
Headers = Sequence[tuple[str, bytes | None]]
HEADERS: Headers = [("content-type", b"application/octet-stream")]


class Asked(NamedTuple):
    """The options of the command line. None: the case's own value."""

    rounds: int
    rows: int | None
    seconds: float
    batches: Sequence[int] | None
    only: Sequence[str] | None
    roots: Sequence[str]


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the suite: the broker, a folder for models, and the order."""

    cluster: Cluster
    folder: Path
    asked: Asked
    tell: Callable[[str], None]

    def contenders(self, *names: str) -> list[str]:
        """Returns the case's contenders that were asked for, and the workers of other checkouts."""
        chosen = [name for name in names if self.asked.only is None or name in self.asked.only]
        return chosen + self.workers[1:]

    @property
    def workers(self) -> list[str]:
        """Our worker, and the workers of other checkouts."""
        return [WORKER, *(f"{WORKER}@{root}" for root in self.asked.roots)]

    def model(self, hidden: Sequence[int]) -> Path:
        """Returns the file of a model that takes 256 floats and gives 16."""
        return save(mlp(WIDTH, hidden, OUTPUTS), self.folder, f"mlp-{'-'.join(map(str, hidden))}")

    def rows(self, usual: int) -> int:
        """Returns the number of requests."""
        return self.asked.rows or usual


@dataclass(frozen=True, slots=True)
class Job:
    """A contender's job. `settings` and the `config` file are the worker's, in addition to `settings()`."""

    cluster: Cluster
    requests: Sequence[str]
    model: Path
    batch: int
    settings: Mapping[str, str] = field(default_factory=dict)
    config: Path | None = None


def raw_values() -> Values:
    """Makes a thousand different rows of random floats, 1 KiB each."""
    return [row.tobytes() for row in np.random.default_rng(3).standard_normal((1000, WIDTH), dtype=np.float32)]


def fill(cluster: Cluster, count: int, values: Values | None = None, *headers: Headers) -> str:
    """Makes a topic with `count` keyed requests, spread evenly over its partitions. They are raw rows by default."""
    topic = cluster.create_topic("bench-requests", partitions=PARTITIONS)
    publish(cluster, topic, count, values or raw_values(), *(headers or [HEADERS]))
    return topic


def publish(cluster: Cluster, topic: str, count: int, values: Values, *headers: Headers) -> None:
    """Put `count` more requests into a topic. `headers` are of all values, or one of each."""
    heads = itertools.cycle(headers)
    requests = (Sent(b"key-%d" % (n % 997), values[n % len(values)], next(heads), n % PARTITIONS) for n in range(count))
    cluster.produce(topic, requests, {"linger.ms": "20", "batch.size": "500000", "enable.idempotence": "true"})


def settings(job: Job, responses: str) -> dict[str, str]:
    """Returns the worker's settings: its defaults except the batch, the device and the job's own settings."""
    return {
        "KAFKA__BOOTSTRAP_SERVERS": job.cluster.bootstrap_servers,
        "KAFKA__REQUEST_TOPICS": ",".join(job.requests),
        "KAFKA__RESPONSE_TOPIC": responses,
        "KAFKA__GROUP_ID": fresh("bench"),
        "MODEL__PATH": str(job.model),
        "MODEL__DEVICE": "cpu",
        "BATCHING__MAX_BATCH_SIZE": str(job.batch),
        **job.settings,
    }


@contextmanager
def response_topic(cluster: Cluster) -> Iterator[str]:
    """Makes a fresh topic, and deletes it at the end."""
    topic = cluster.create_topic("bench-responses", partitions=PARTITIONS)
    try:
        yield topic
    finally:
        cluster.delete_topic(topic)


def there(cluster: Cluster, topic: str) -> int:
    """Returns the number of records in a topic. If the broker is too busy to answer, it is asked again."""
    deadline = time.monotonic() + GIVE_UP
    while True:
        try:
            return sum(cluster.end_offsets(topic).values())
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_EVERY)


def wait_for(cluster: Cluster, topic: str, count: int, why_dead: Callable[[], str | None] = lambda: None) -> int:
    """Wait for so many records. Returns how many there are. Fails if the contender is dead or too slow."""
    deadline = time.monotonic() + GIVE_UP
    while (now := there(cluster, topic)) < count:
        if reason := why_dead():
            raise AssertionError(reason)
        assert time.monotonic() < deadline, f"{now} of {count} answers after {GIVE_UP} s"
        time.sleep(LOOK_EVERY)
    return now

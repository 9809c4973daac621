"""Where loads take place: a Kafka, with topics made for the purpose, or a mock broker inside this process.

Owns what it makes there. Nothing that was there before is touched or read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from worker.settings import Connection
from worker.tools.kafka.embedded import CLIENT_CONFIG, PARTITION_BYTES, PARTITIONS, EmbeddedBroker
from worker.tools.kafka.own_topics import OwnTopics
from worker.tools.load.generator import Site

# Bytes that a mock topic keeps for sure: it drops the oldest silently, and keys do not share partitions equally.
_KEPT = PARTITION_BYTES * PARTITIONS * 0.6
# Of a record beside its value: key, headers and what frames them.
_OVERHEAD = 150


class Mock:
    """A fresh mock broker for each turn: it would keep what the turns before have sent."""

    has_backlogs = False

    def __init__(self, config: dict[str, str]) -> None:
        """`config`: librdkafka keys for all clients."""
        self._config = {**CLIENT_CONFIG, **config}

    @contextmanager
    def open(self) -> Iterator[Site]:
        with EmbeddedBroker() as broker:
            for topic in ("requests", "answers", "rejected"):
                broker.create_topic(topic)
            kafka = Connection(bootstrap_servers=broker.bootstrap_servers, config=self._config)
            yield Site(kafka, "requests", "answers", "rejected", "bench")


def kept_by_mock(request_bytes: int) -> int:
    """How many unanswered requests of that size are safe there."""
    return max(1, int(_KEPT / (request_bytes + _OVERHEAD)))


class Cluster:
    """A real Kafka: each turn has topics and a group with fresh names."""

    has_backlogs = True

    def __init__(self, kafka: Connection, topics: OwnTopics, prefix: str) -> None:
        """`prefix`: what all names begin with, this run's alone."""
        self._kafka = kafka
        self._topics = topics
        self._prefix = prefix
        self._numbers = itertools.count(1)

    @contextmanager
    def open(self) -> Iterator[Site]:
        """Topics and a group. The topics are deleted at once in the end, the group with all others."""
        name = f"{self._prefix}-{next(self._numbers)}"
        topics = f"{name}-requests", f"{name}-answers", f"{name}-rejected"
        self._topics.create(*topics)
        self._topics.will_use(name)
        yield Site(self._kafka, *topics, name)
        self._topics.delete(*topics)  # after a failure that is left to the end

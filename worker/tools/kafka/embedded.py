"""A broker inside this process, for the demo and for tests: librdkafka's mock cluster.

It speaks the real protocol on a port of 127.0.0.1, and other processes may connect. Its limits (measured 2026): a
partition keeps 5 MB or 100,000 batches and drops the oldest silently; nothing survives its end; there are no
transactions, TLS, passwords or access rules; every topic has four partitions; new data does not wake a waiting fetch,
so consumers need a `fetch.wait.max.ms` of 10 or less; administrative requests get no answer.
"""

from __future__ import annotations

from confluent_kafka import Producer

from worker.tools.closing import Closing

PARTITIONS = 4  # of each topic; the mock offers no other number
PARTITION_BYTES = 5_000_000  # the most that a partition keeps
CLIENT_CONFIG = {"fetch.wait.max.ms": "2"}  # for consumers: ask again soon, because nothing wakes a waiting fetch
_TIMEOUT = 10.0


class EmbeddedBroker(Closing):
    """A running mock cluster of one broker. It ends with `close`, or with the process."""

    def __init__(self) -> None:
        # The mock belongs to a client, here a producer that never produces. All it would log is that it is a mock.
        self._owner = Producer({"test.mock.num.brokers": 1, "log_level": 3})
        brokers = self._owner.list_topics(timeout=_TIMEOUT).brokers.values()
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def create_topic(self, topic: str) -> None:
        """Make a topic. The mock makes each topic that a client asks about."""
        self._owner.list_topics(topic, timeout=_TIMEOUT)

    def close(self) -> None:
        del self._owner

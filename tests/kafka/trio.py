"""Three Kafka nodes as child processes, each broker and controller, with all topics; any one may be missing.

Writes need two of the three. About 350 MB each. Binds to 127.0.0.1 alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException

from tests.kafka.broker import JvmBroker, seats
from tests.kafka.cluster import Cluster
from tests.kafka.network import DOOR, Proxy

REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
}
IN_SYNC_WITHIN = 120.0  # a killed broker is let in again after its session, 3 s, and has to catch up


class Trio:
    """Owns the nodes and a proxy before each; `with` starts and removes them. `config` is each broker's.

    `cluster` connects directly; a client of `proxied` can be cut off from each node.
    """

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        self._config = {**REPLICATED, **(config or {})}
        self._stack = ExitStack()
        self.nodes: list[JvmBroker] = []
        self.proxies: list[Proxy] = []

    def _add(self, node: JvmBroker, proxy: Proxy) -> None:
        self._stack.callback(node.remove)
        proxy.forward_to(node.addresses[DOOR])
        self.nodes.append(node)

    def __enter__(self) -> Self:
        for seat in seats(3):
            proxy = self._stack.enter_context(Proxy())
            self.proxies.append(proxy)
            doors, advertised = {DOOR: "PLAINTEXT"}, {DOOR: proxy.address}
            self._add(JvmBroker(self._config, doors=doors, advertised=advertised, seat=seat), proxy)
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_answering()
        self.cluster = Cluster(",".join(node.bootstrap_servers for node in self.nodes))
        self.proxied = ",".join(proxy.address for proxy in self.proxies)
        self.wait_until_in_sync()
        return self

    def heal(self) -> None:
        """Let all of them run and be reached again; return when they are in sync."""
        for proxy in self.proxies:
            proxy.heal()
        for node in self.nodes:
            node.heal()
        self.wait_until_in_sync()

    def wait_until_in_sync(self) -> None:
        """Wait until all three are there, and each partition is whole on all of them."""
        deadline = time.monotonic() + IN_SYNC_WITHIN
        while not self._is_in_sync():
            assert time.monotonic() < deadline, "the nodes do not come to hold the same"
            time.sleep(0.2)

    def _is_in_sync(self) -> bool:
        try:
            found = self.cluster.admin.list_topics(timeout=2.0)
        except KafkaException:  # the node that was asked is not back
            return False
        partitions = [partition for topic in found.topics.values() for partition in topic.partitions.values()]
        return len(found.brokers) == 3 and all(len(partition.isrs) == 3 for partition in partitions)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

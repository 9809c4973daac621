"""What a cluster can do, found by asking and by trying: which Kafka it is, and whether its clients' parts work for us.

Tries what a worker does at its start and nothing more: no group is joined, no record written. An idempotent producer
takes an id, of which a cluster has 2**63.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from worker.core.failures import KafkaFatal
from worker.kafka.client.config import consumer_config, producer_config
from worker.kafka.client.errors import configuring
from worker.kafka.client.log import ClientLog
from worker.kafka.cluster.admin_answers import known_requests
from worker.kafka.cluster.examination import Topics
from worker.settings import KafkaSettings

# The newest of these that a broker knows dates it: (request's number, its version) by release, as the KIPs say.
_FETCH, _INIT_PRODUCER_ID, _DESCRIBE_CLUSTER, _GROUP_HEARTBEAT, _SHARE_FETCH, _END_TRANSACTION = 1, 22, 60, 68, 78, 26
RELEASES = (
    ((_SHARE_FETCH, 2), "4.2"),
    ((_FETCH, 18), "4.1"),
    ((_GROUP_HEARTBEAT, 1), "4.0"),
    ((_FETCH, 17), "3.9"),
    ((_FETCH, 16), "3.7"),
    ((_FETCH, 15), "3.5"),
    ((_FETCH, 13), "3.1"),
    ((_DESCRIBE_CLUSTER, 0), "2.8"),
    ((_FETCH, 12), "2.7"),
    ((_FETCH, 11), "2.3"),
    ((_INIT_PRODUCER_ID, 0), "0.11"),
)

# The state of a producer that has its id, in the client's statistics.
_HAS_ID = "Assigned"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the broker that answered knows. None: it does not say."""

    release: str | None  # the oldest Kafka that knows all this
    consumer_protocol: bool | None
    transactions: bool | None


def capabilities(kafka: KafkaSettings, timeout: float) -> Capabilities:
    """What follows from the requests that its broker knows."""
    apis = known_requests(kafka, kafka.response_topic, timeout)
    if not apis:
        return Capabilities(None, None, None)
    release = next((name for (key, version), name in RELEASES if apis.get(key, -1) >= version), None)
    return Capabilities(release, _GROUP_HEARTBEAT in apis, _END_TRANSACTION in apis)


def try_clients(kafka: KafkaSettings, topics: Topics, logger: logging.Logger, timeout: float) -> None:
    """Make the clients that a worker makes, and have the producer take its id.

    Raises `BadConfiguration` when one refuses its configuration, `KafkaFatal` when the broker refuses the producer.
    """
    with configuring("consumer"):
        Consumer({**consumer_config(kafka, topics.membership)}, logger=ClientLog(logger)).close()
    _try_producer(kafka, topics, logger, timeout)


def _try_producer(kafka: KafkaSettings, topics: Topics, logger: logging.Logger, timeout: float) -> None:
    states: list[str] = []
    errors: list[KafkaError] = []
    config: dict[str, Any] = {
        **producer_config(kafka, topics.largest_message, topics.largest_batch),
        "statistics.interval.ms": 50,
        "stats_cb": lambda statistics: states.append(json.loads(statistics)["eos"]["idemp_state"]),
        "error_cb": errors.append,
    }
    with configuring("producer"):
        producer = Producer(config, logger=ClientLog(logger))
    deadline = time.monotonic() + timeout
    while _HAS_ID not in states:
        producer.poll(0.05)
        if refused := next((error for error in errors if error.fatal()), None):
            raise KafkaFatal(
                f"the broker refuses an idempotent producer: {refused.str()}; grant this client IDEMPOTENT_WRITE on "
                "the cluster, which brokers before Kafka 2.8 want"
            )
        if time.monotonic() > deadline:
            raise KafkaFatal(f"no broker gave the producer an id within {timeout:g} s; look at the broker's log")

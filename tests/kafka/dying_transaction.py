"""A transaction without an end: it holds answers, and its process is killed.

    python -m tests.kafka.dying_transaction BOOTSTRAP_SERVERS TOPIC TRANSACTIONAL_ID TIMEOUT_MS

Prints a line once its answers have arrived, and waits to be killed.
"""

from __future__ import annotations

import logging
import sys
import time

from tests.contract.test_sink import stretches
from worker.core.failures import BadConfiguration
from worker.core.records import Message
from worker.kafka.client.membership import Membership, TransactionalId
from worker.kafka.cluster.topics import Topics
from worker.kafka.transactions.kafka_transactions import KafkaTransactions
from worker.settings import KafkaSettings


def opened(
    bootstrap_servers: str, topic: str, name: str, timeout_ms: int, *, ready_timeout: float = 15.0
) -> KafkaTransactions:
    """A producer ready to begin, under an id that others may have. It has no group: it commits answers alone."""
    transactions = KafkaTransactions(
        KafkaSettings(
            bootstrap_servers=bootstrap_servers, request_topics=("requests",), response_topic=topic, group_id="g"
        ),
        Topics({topic: 1}, {topic: 1_000_000}, Membership("consumer", "test")),
        TransactionalId(name, name, is_unique=False, is_stable=True),
        timeout_ms,
        lambda: None,
        logging.getLogger("librdkafka"),
    )
    try:
        transactions.wait_until_ready(ready_timeout)
    except BadConfiguration:
        transactions.close(0.0)
        raise
    return transactions


def main(bootstrap_servers: str, topic: str, name: str, timeout_ms: str) -> None:
    transactions = opened(bootstrap_servers, topic, name, int(timeout_ms))
    transactions.begin()
    for stretch in stretches(10):
        transactions.send([Message(topic, b"k", b"open", [], 0)], stretch)
    while transactions.undelivered:
        transactions.serve(0.01)
    sys.stdout.write("open\n")
    sys.stdout.flush()
    time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])

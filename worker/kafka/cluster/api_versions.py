"""Which requests a broker knows, and in which versions: what tells its age, and what can be asked of it.

The client keeps this to itself and tells it in its debugging lines alone, so a client is made to hear them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from worker.kafka.client.config import admin_config
from worker.settings import Connection

# The request that commits offsets in a transaction, and its version that says who does (KIP-447).
_TXN_OFFSET_COMMIT, _NAMES_THE_MEMBER = 28, 3
_API = re.compile(r"ApiKey \S+ \((\d+)\) Versions \d+\.\.(\d+)")


def known_requests(kafka: Connection, topic: str, timeout: float) -> Mapping[int, int]:
    """The highest version of each request, by its number; none when the broker does not answer. Asks for `topic`."""
    lines: list[str] = []
    logger = SimpleNamespace(log=lambda *said: lines.append(said[-1]))
    admin = AdminClient({**admin_config(kafka), "debug": "feature", "log_level": 7}, logger=logger)
    try:
        admin.list_topics(topic, timeout=timeout)
    except KafkaException:
        return {}
    admin.poll(0)
    found = [_API.search(line) for line in lines]
    return {int(api[1]): int(api[2]) for api in found if api}


def fences_by_group(known: Mapping[int, int]) -> bool:
    """Whether a member that lost a partition is refused its offset in a transaction. Without an answer: believed."""
    return not known or known.get(_TXN_OFFSET_COMMIT, -1) >= _NAMES_THE_MEMBER

"""Which topics the cluster has, and which of them a name that is none may have been meant for."""

from __future__ import annotations

import difflib
from collections.abc import Container, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

# difflib's ratio. `new-req` and `newc-req` have 0.93, `requests` and `digits-requests` 0.696.
_NEAR = 0.65
_MOST_TOLD = 3


def near_topics(admin: AdminClient, topic: str, timeout: float, in_use: Container[str] = ()) -> str:
    """`; did you mean newc-req?`, or nothing. Those that are `in_use` for something else were not meant."""
    others = [name for name in topics_told(admin, timeout) if name not in in_use]
    near = difflib.get_close_matches(topic, others, n=_MOST_TOLD, cutoff=_NEAR)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def topics_told(admin: AdminClient, timeout: float) -> Mapping[str, int]:
    """The topics that this client may see, with their partitions; Kafka's own are left out."""
    try:
        known = admin.list_topics(timeout=timeout).topics
    except KafkaException:
        return {}  # there may be a right to see a topic, and none to see all
    return {name: len(topic.partitions) for name, topic in known.items() if not name.startswith("__")}

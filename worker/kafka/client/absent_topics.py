"""Which topics of the cluster a name that is none of them may have been meant for."""

from __future__ import annotations

import difflib
from collections.abc import Container

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

# difflib's ratio. `new-req` and `newc-req` have 0.93, `requests` and `digits-requests` 0.696.
_NEAR = 0.65
_MOST_TOLD = 3


def near_topics(admin: AdminClient, topic: str, timeout: float, in_use: Container[str] = ()) -> str:
    """`; did you mean newc-req?`, or nothing. Those that are `in_use` for something else were not meant."""
    try:
        known = admin.list_topics(timeout=timeout).topics
    except KafkaException:
        return ""  # there may be a right to see a topic, and none to see all
    others = [name for name in known if name not in in_use and not name.startswith("__")]
    near = difflib.get_close_matches(topic, others, n=_MOST_TOLD, cutoff=_NEAR)
    return f"; did you mean {' or '.join(near)}?" if near else ""

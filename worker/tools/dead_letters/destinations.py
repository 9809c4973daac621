"""The topics that records are sent back to: found when the first record wants one, and asked what they take."""

from __future__ import annotations

import re
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from worker.kafka.client.command_clients import client_log, why_unusable
from worker.kafka.client.config import admin_config
from worker.kafka.client.errors import words_of
from worker.kafka.cluster.admin_answers import record_limits, told
from worker.kafka.cluster.examination import CAUTIOUS_LIMIT, START_TIMEOUT
from worker.settings import TOPIC_NAME, Connection


class Destination(NamedTuple):
    """A topic that records may go to. `max_bytes` limits one record; `fault` says why none can go there."""

    topic: str
    partitions: int = 0
    max_bytes: int = 0
    fault: str | None = None


class Destinations:
    """Finds topics, each once. Owns an admin client that changes nothing."""

    def __init__(self, kafka: Connection, forbidden: str) -> None:
        """`forbidden` is the topic that the records come from: nothing may go there."""
        self._forbidden = forbidden
        self._found: dict[str, Destination] = {}
        self._admin = AdminClient(admin_config(kafka), logger=client_log())

    def find(self, topic: str) -> Destination:
        """The topic as it was when it was first asked for."""
        if topic not in self._found:
            self._found[topic] = self._look(topic)
        return self._found[topic]

    def _look(self, topic: str) -> Destination:
        # The name may come from a header, and its writer could make us write where only we may.
        if topic.startswith("__") or topic == self._forbidden:
            return Destination(topic, fault=f"no request comes from {topic}")
        if not re.fullmatch(TOPIC_NAME, topic):
            return Destination(topic, fault=f"no topic is called {topic!r}")
        try:
            found = self._admin.list_topics(topic, timeout=START_TIMEOUT).topics[topic]
        except KafkaException as error:
            return Destination(topic, fault=f"the broker does not say whether topic {topic} exists: {words_of(error)}")
        if found.error is not None:
            return Destination(topic, fault=why_unusable(topic, found.error, "WRITE"))
        if not self._may_write(topic):
            return Destination(topic, fault=f"this client may not write to topic {topic}; grant it the operation WRITE")
        limit = record_limits(self._admin, [topic], START_TIMEOUT)[topic] or CAUTIOUS_LIMIT
        return Destination(topic, len(found.partitions), limit)

    def _may_write(self, topic: str) -> bool:
        """A broker that does not tell is believed: what is missing shows when it is used."""
        names = TopicCollection([topic])
        asked = self._admin.describe_topics(names, include_authorized_operations=True, request_timeout=START_TIMEOUT)
        allowed = getattr(told(asked[topic], START_TIMEOUT), "authorized_operations", None)
        return allowed is None or AclOperation.WRITE in allowed

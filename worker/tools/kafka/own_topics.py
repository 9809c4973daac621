"""Topics and groups that a measurement makes for itself and deletes again; and the number of a group's members."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from worker.core.failures import BadConfiguration
from worker.kafka.client.command_clients import ANSWER_TIMEOUT, NO_LOG, client_log
from worker.kafka.client.connecting import connect
from worker.kafka.client.errors import words_of
from worker.kafka.cluster.admin_answers import OUTLASTING, described_group
from worker.settings import Connection

# These answers to a deletion are fine: the topic was never created, or the group never joined.
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)


class OwnTopics:
    """Makes topics on a real cluster, each with `partitions` partitions; `close` deletes them.

    Owns the topics and groups that it made, by name. It deletes no topic that it did not create.
    """

    def __init__(self, kafka: Connection, prefix: str, partitions: int) -> None:
        """`prefix`: a name that no topic has. Raises `BadConfiguration` if no broker answers."""
        self.partitions = partitions
        contact = connect(kafka, NO_LOG, ANSWER_TIMEOUT, prefix)
        if contact.is_mock:
            raise BadConfiguration(f"{kafka.bootstrap_servers} is a mock, which makes no topics")
        self._admin = contact.admin
        self._topics: list[str] = []
        self._groups: list[str] = []

    def create(self, group: str, *topics: str) -> None:
        """Make these topics, and wait until each partition has a leader. `group` will read them.

        Raises `BadConfiguration` if we may not create them.
        """
        self._topics += topics  # noted first, because a topic may be created although the answer is lost
        self._groups.append(group)
        for topic, asked in self._admin.create_topics([NewTopic(name, self.partitions) for name in topics]).items():
            try:
                asked.result(ANSWER_TIMEOUT)
            except (KafkaException, TimeoutError) as error:
                raise BadConfiguration(
                    f"topic {topic} could not be created: {words_of(error)}; this client needs the operations CREATE, "
                    "DELETE, READ and WRITE on topics that begin so (--prefix), and READ on such groups"
                ) from error
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while not all(self._is_there(topic) for topic in topics):
            if time.monotonic() > deadline:
                raise BadConfiguration(f"topic {topics[0]} was created and does not get leaders; look at the brokers")
            time.sleep(0.02)

    def close(self) -> list[str]:
        """Delete all topics and groups. Returns the topics that could not be deleted.

        A group whose member was killed stays until its session ends; then the broker forgets it.
        """
        if not self._topics:
            return []
        left = _left(self._admin.delete_topics(self._topics, request_timeout=ANSWER_TIMEOUT))
        _left(self._admin.delete_consumer_groups(self._groups, request_timeout=OUTLASTING))
        return left

    def _is_there(self, topic: str) -> bool:
        found = self._admin.list_topics(topic, timeout=ANSWER_TIMEOUT).topics[topic].partitions
        return len(found) == self.partitions and all(at.leader >= 0 for at in found.values())


def _left(asked: Mapping[str, Future[Any]]) -> list[str]:
    """Returns the names that could not be deleted."""
    left = []
    for name, future in asked.items():
        try:
            future.result(ANSWER_TIMEOUT)
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, TimeoutError) or error.args[0].code() not in _GONE:
                left.append(name)
    return left


def members_of(kafka: Connection, group: str) -> int:
    """Returns the number of a group's members; 0 if it does not exist. Raises `BadConfiguration` if no broker tells."""
    try:
        return len(described_group(kafka, group, ANSWER_TIMEOUT, client_log()).members)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return 0
        why = f"{words_of(error)}; grant DESCRIBE on it"
    except TimeoutError:
        why = "no answer in time"
    raise BadConfiguration(f"whether group {group} has members is not known: {why}")

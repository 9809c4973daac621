"""Topics and groups that a measurement makes for itself, and takes away again.

Owns what it has made, by name, and nothing else: it deletes no topic that it did not create.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from worker.core.failures import BadConfiguration
from worker.kafka.client.command_clients import ANSWER_TIMEOUT, NO_LOG
from worker.kafka.client.connecting import connect
from worker.kafka.cluster.admin_answers import told_offset
from worker.settings import Connection
from worker.tools.closing import Closing

# A topic that never came to be, a group that was never joined: gone, as they should be.
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)


class OwnTopics(Closing):
    """Makes topics on a real cluster, each with so many partitions; as a context manager it leaves none behind."""

    def __init__(self, kafka: Connection, prefix: str, partitions: int) -> None:
        """`prefix`: a name that no topic has. Raises `BadConfiguration` when no broker answers."""
        self.partitions = partitions
        contact = connect(kafka, NO_LOG, ANSWER_TIMEOUT, prefix)
        if contact.is_mock:
            raise BadConfiguration(f"{kafka.bootstrap_servers} is a mock, which makes no topics; try --embedded")
        self._admin = contact.admin
        self._topics: list[str] = []
        self._groups: list[str] = []

    def create(self, *topics: str) -> None:
        """Make them, and wait until each partition has a leader. Raises `BadConfiguration` where we may not."""
        self._topics += topics  # first: what is asked for may come to be though its answer is lost
        self._create(topics)
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while not all(self._is_there(topic) for topic in topics):
            if time.monotonic() > deadline:
                raise BadConfiguration(f"topic {topics[0]} was created and does not get leaders; look at the brokers")
            time.sleep(0.02)

    def will_use(self, group: str) -> None:
        self._groups.append(group)

    def delete(self, *topics: str) -> None:
        """Delete some of them before the end, or else then."""
        left = _failed(self._admin.delete_topics(list(topics), request_timeout=ANSWER_TIMEOUT))
        self._topics = [topic for topic in self._topics if topic in left or topic not in topics]

    def close(self) -> list[str]:
        """Delete all that is left. Returns the topics that could not be deleted.

        A group whose member was killed stays until its session is over; the broker forgets it by itself.
        """
        left = _failed(self._admin.delete_topics(self._topics, request_timeout=ANSWER_TIMEOUT)) if self._topics else []
        if self._groups:
            _failed(self._admin.delete_consumer_groups(self._groups, request_timeout=ANSWER_TIMEOUT))
        self._topics, self._groups = [], []
        return left

    def _is_there(self, topic: str) -> bool:
        """A broker may name itself the leader a moment before it knows that it is one (seen 2026): it is asked."""
        found = self._admin.list_topics(topic, timeout=ANSWER_TIMEOUT).topics[topic].partitions
        if len(found) < self.partitions or any(at.leader < 0 for at in found.values()):
            return False
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client declares no types for it
        asked = {TopicPartition(topic, number): earliest for number in found}
        answers = self._admin.list_offsets(asked, request_timeout=ANSWER_TIMEOUT).values()
        return all(told_offset(answer, ANSWER_TIMEOUT) is not None for answer in answers)

    def _create(self, topics: Sequence[str]) -> None:
        asked = self._admin.create_topics([NewTopic(name, self.partitions) for name in topics])
        for topic, future in asked.items():
            if (error := _error(future)) is not None:
                raise BadConfiguration(
                    f"topic {topic} could not be created: {_said(error)}; this client needs the operations CREATE, "
                    "DELETE, READ and WRITE on topics that begin so (--prefix), and READ on such groups"
                ) from error


def _failed(asked: Mapping[str, Future[Any]]) -> list[str]:
    """What is there still."""
    errors = {name: _error(future) for name, future in asked.items()}
    return [name for name, error in errors.items() if error is not None and not _is_gone(error)]


def _error(future: Future[Any]) -> KafkaException | TimeoutError | None:
    try:
        future.result(ANSWER_TIMEOUT)
    except (KafkaException, TimeoutError) as error:
        return error
    return None


def _is_gone(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _GONE


def _said(error: Exception) -> str:
    return str(error.args[0].str()) if isinstance(error, KafkaException) else "no answer in time"

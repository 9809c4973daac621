"""What must be true of the cluster before the group is joined, and what the worker needs to know of it.

Everything is looked at before anything is said: each problem is one line that names the setting, the fact and the cure,
and all of them come at once. What an ordinary client's access does not allow it asks for and can do without.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from worker.core.failures import BadConfiguration
from worker.kafka.client_config import admin_config, denied_keys
from worker.kafka.client_log import ClientLog
from worker.kafka.membership import Membership, choose_membership
from worker.settings import KafkaSettings

# librdkafka's own limit for a producer, a little below Kafka's default for a topic (1,048,588).
CAUTIOUS_LIMIT = 1_000_000

ANSWER_TIMEOUT = 15.0  # a TLS and SASL handshake with a broker far away takes one or two, seconds
SESSION_KEY = "consumer.session.timeout.ms"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Topics:
    """What the cluster said. `partitions` counts those of every topic we use, `max_bytes` limits a batch of records.

    `notes` are facts an operator may want to mend, though the worker runs.
    """

    partitions: Mapping[str, int]
    max_bytes: Mapping[str, int]
    membership: Membership
    notes: tuple[str, ...] = ()

    @property
    def largest_message(self) -> int:
        """Bytes of the largest record that any topic we write to takes."""
        return max(self.max_bytes.values())

    @property
    def largest_batch(self) -> int:
        """Bytes of the largest batch that every topic we write to takes."""
        return min(self.max_bytes.values())


def examine(kafka: KafkaSettings, logger: logging.Logger, timeout: float = ANSWER_TIMEOUT) -> Topics:
    """Ask the cluster. Raises `BadConfiguration` with every problem, one a line."""
    if problems := denied_keys(kafka):
        raise BadConfiguration("\n".join(problems))
    log = ClientLog(logger)
    try:
        admin = AdminClient(admin_config(kafka), logger=log)
    except (KafkaException, ValueError, TypeError) as error:
        raise BadConfiguration(f"WORKER_KAFKA__CONFIG: the Kafka client refuses its configuration: {error}") from error
    return _Examination(kafka, admin, log, timeout).run()


class _Examination:
    """One look at the cluster; collects problems and notes as it goes."""

    def __init__(self, kafka: KafkaSettings, admin: AdminClient, log: ClientLog, timeout: float) -> None:
        self._kafka = kafka
        self._admin = admin
        self._log = log
        self._timeout = timeout
        self._problems: list[str] = []
        self._notes: list[str] = []
        self._written = {"RESPONSE_TOPIC": kafka.response_topic}
        if kafka.dead_letter_topic is not None:
            self._written["DEAD_LETTER_TOPIC"] = kafka.dead_letter_topic

    def run(self) -> Topics:
        can_administer = self._reach_broker()
        partitions = self._count_partitions()
        if can_administer and not self._problems:
            self._check_access()
        if self._problems:
            raise BadConfiguration("\n".join(self._problems))
        limits = self._read_limits() if can_administer else self._assume_limits([*self._written.values()])
        membership = self._ask_group() if can_administer else choose_membership(self._kafka, None)
        return Topics(partitions, limits, membership, tuple(self._notes))

    def _reach_broker(self) -> bool:
        """Whether a controller answers administrative requests; librdkafka's mock cluster has none."""
        try:
            found = self._admin.list_topics(topic=self._kafka.response_topic, timeout=self._timeout)
        except KafkaException as error:
            self._admin.poll(0)  # hear what the client has to say about it
            raise BadConfiguration(
                f"WORKER_KAFKA__BOOTSTRAP_SERVERS: no broker at {self._kafka.bootstrap_servers} answers within "
                f"{self._timeout:g} s: {self._log.last or _said(error)}; check the address, the network and "
                "WORKER_KAFKA__SECURITY_PROTOCOL"
            ) from error
        return found.controller_id in found.brokers

    def _count_partitions(self) -> dict[str, int]:
        wanted = dict.fromkeys(self._kafka.request_topics, "REQUEST_TOPICS")
        wanted |= {topic: setting for setting, topic in self._written.items()}
        return {topic: self._partitions(setting, topic) for topic, setting in wanted.items()}

    def _partitions(self, setting: str, topic: str) -> int:
        try:
            found = self._admin.list_topics(topic=topic, timeout=self._timeout).topics[topic]
        except KafkaException as error:
            self._problems.append(f"WORKER_KAFKA__{setting}: the broker does not say whether {topic} exists: {error}")
            return 0
        if found.error is not None:
            self._problems.append(f"WORKER_KAFKA__{setting}: {_why_unusable(setting, topic, found.error)}")
        return len(found.partitions)

    def _check_access(self) -> None:
        wanted = [("REQUEST_TOPICS", topic, AclOperation.READ) for topic in self._kafka.request_topics]
        wanted += [(setting, topic, AclOperation.WRITE) for setting, topic in self._written.items()]
        names = TopicCollection([topic for _, topic, _ in wanted])
        asked = self._admin.describe_topics(names, include_authorized_operations=True, request_timeout=self._timeout)
        for setting, topic, operation in wanted:
            described = self._result(asked[topic])
            self._require(described, operation, f"WORKER_KAFKA__{setting}: this client may not", f"topic {topic}")
        group = self._kafka.group_id
        groups = self._admin.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=self._timeout
        )
        described = self._result(groups[group])
        self._require(described, AclOperation.READ, "WORKER_KAFKA__GROUP_ID: this client may not", f"group {group}")

    def _require(self, described: Any, operation: AclOperation, what: str, where: str) -> None:
        """A broker that does not tell (None) is believed: what is missing shows when it is used."""
        allowed = getattr(described, "authorized_operations", None)
        if allowed is not None and operation not in allowed:
            verb = operation.name.lower()
            self._problems.append(f"{what} {verb} {where}; grant it the operation {operation.name}")

    def _read_limits(self) -> dict[str, int]:
        resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in self._written.values()}
        asked = self._admin.describe_configs(list(resources.values()), request_timeout=self._timeout)
        limits: dict[str, int] = {}
        for topic, resource in resources.items():
            described = self._result(asked[resource])
            if described is None or "max.message.bytes" not in described:
                limits |= self._assume_limits([topic])
            else:
                limits[topic] = int(described["max.message.bytes"].value)
        return limits

    def _assume_limits(self, topics: Iterable[str]) -> dict[str, int]:
        limit = self._kafka.max_message_bytes or CAUTIOUS_LIMIT
        if self._kafka.max_message_bytes is None:
            self._notes += [
                f"the broker does not tell the size limit of topic {topic}, {limit} bytes are assumed; grant "
                "DESCRIBE_CONFIGS on it or set WORKER_KAFKA__MAX_MESSAGE_BYTES"
                for topic in topics
            ]
        return dict.fromkeys(topics, limit)

    def _ask_group(self) -> Membership:
        """Brokers before KIP-848 do not know groups that can be configured, and say so whatever the client may do."""
        resource = ConfigResource(ResourceType.GROUP, self._kafka.group_id)
        asked = self._admin.describe_configs([resource], request_timeout=self._timeout)
        try:
            described = asked[resource].result(self._timeout)
        except KafkaException as error:
            is_absent = error.args[0].code() == KafkaError.INVALID_REQUEST
            return choose_membership(self._kafka, None, is_absent=is_absent)
        session = described.get(SESSION_KEY)
        if session is None:
            return choose_membership(self._kafka, None, is_absent=True)
        return choose_membership(self._kafka, int(session.value) / 1000)

    def _result(self, future: Future[T]) -> T | None:
        """None where the broker will not tell, or is too old to."""
        try:
            return future.result(self._timeout)
        except KafkaException:
            return None


def _why_unusable(setting: str, topic: str, error: KafkaError) -> str:
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return f"there is no topic {topic}; create it, or name another"
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        operation = "READ" if setting == "REQUEST_TOPICS" else "WRITE"
        return f"this client may not see topic {topic}; grant it the operation {operation}"
    return f"topic {topic} cannot be used: {error.str()}"


def _said(error: KafkaException) -> str:
    return str(error.args[0].str()) if error.args and isinstance(error.args[0], KafkaError) else str(error)

"""The examination of the cluster before the group is joined: the conditions of a start, and facts for the worker.

All problems come at once, after everything was looked at. Each problem is one line that names the setting, the fact and
the cure. If an ordinary client's access does not allow a question, it is asked and left open.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclOperation,
    ConfigResource,
    ConsumerGroupDescription,
    ResourceType,
    TopicDescription,
    TopicMetadata,
)

from worker.core.failures import BadConfiguration
from worker.kafka.client.command_clients import NEW_TOPIC_TIMEOUT, look_up, why_unusable
from worker.kafka.client.connecting import Contact, connect, explained
from worker.kafka.client.errors import words_of
from worker.kafka.client.membership import choose_membership
from worker.kafka.cluster.admin_answers import (
    LARGEST_USUAL_RECORD,
    LIMIT_KEY,
    TIMED_OUT,
    Configs,
    described_group,
    largest_record,
    topic_configs,
)
from worker.kafka.cluster.topics import CHANGELOG_CONFIGS, LAG_KEY, Right, Topics, missing, needed, used, written
from worker.settings import KafkaSettings

# librdkafka's own limit for a producer, a little below Kafka's default for a topic (1,048,588).
CAUTIOUS_LIMIT = 1_000_000

START_TIMEOUT = 15.0  # seconds of each question at the start; a TLS and SASL handshake far away takes one or two
LIMIT_TIMEOUT = 2.0  # seconds of the question about a broker's own limit, which most clients may not ask
SESSION_KEY = "consumer.session.timeout.ms"
CONFIGS = ("cleanup.policy", LIMIT_KEY, LAG_KEY)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic that we use. `setting` names it in our settings; `config` holds `CONFIGS`, None if not told."""

    name: str
    setting: str
    partitions: int
    replication: int
    config: Mapping[str, str] | None


class StartVerdict(NamedTuple):
    """The verdict on a start: a worker can start if there are no `problems`, and then `topics` is not None.

    `seen` are our topics, as far as we may see them. `warnings` name what a worker has to do without.
    """

    problems: tuple[str, ...]
    topics: Topics | None
    seen: tuple[TopicFacts, ...]
    warnings: tuple[str, ...] = ()


def examine(
    kafka: KafkaSettings,
    logger: logging.Logger,
    timeout: float = START_TIMEOUT,
    *,
    with_transactions: bool = False,
    waiting: Callable[[str], object] | None = None,
) -> Topics:
    """Ask the cluster; `waiting` hears that it is not there yet. Raises `BadConfiguration`, one line per problem."""
    contact = connect(kafka, logger, timeout, kafka.response_topic, waiting)
    verdict = judge(kafka, contact, timeout, with_transactions=with_transactions)
    if verdict.topics is None:
        raise BadConfiguration("\n".join(verdict.problems))
    return verdict.topics


def judge(
    kafka: KafkaSettings, contact: Contact, timeout: float = START_TIMEOUT, *, with_transactions: bool = False
) -> StartVerdict:
    """The verdict on a cluster that answers, with all its problems as values."""
    return _Examination(kafka, contact, timeout, with_transactions=with_transactions).run()


class _Examination:
    """One look at the cluster; collects problems and notes as it goes."""

    def __init__(self, kafka: KafkaSettings, contact: Contact, timeout: float, *, with_transactions: bool) -> None:
        self._kafka = kafka
        self._with_transactions = with_transactions
        self._contact = contact
        self._admin = contact.admin
        self._timeout = timeout
        self._problems: list[str] = []
        self._warnings: list[str] = []
        self._has_members = False
        self._written = written(kafka)
        self._shut: dict[str, str] = {}
        self._can_administer = not contact.is_mock
        self._new_topics_by = time.monotonic() + NEW_TOPIC_TIMEOUT

    def run(self) -> StartVerdict:
        if self._with_transactions and self._contact.is_mock:
            self._problems.append(
                "WORKER_DELIVERY__GUARANTEE: exactly_once does not hold on this cluster: it is a mock"
            )
        settings = used(self._kafka)
        found = {topic: self._found(setting, topic) for topic, setting in settings.items()}
        if self._can_administer:
            self._check_access()
        present = {topic: metadata for topic, metadata in found.items() if metadata and metadata.error is None}
        configs = topic_configs(self._admin, present, CONFIGS, self._timeout) if self._can_administer else {}
        seen = tuple(
            TopicFacts(topic, settings[topic], len(metadata.partitions), _replication(metadata), configs.get(topic))
            for topic, metadata in present.items()
        )
        partitions = {topic: len(metadata.partitions) if metadata else 0 for topic, metadata in found.items()}
        self._check_changelog(partitions)
        if self._can_administer and not self._problems:
            self._check_compaction(configs)
        topics = None if self._problems else self._topics(partitions, configs)
        return StartVerdict(tuple(self._problems), topics, seen, tuple(self._warnings))

    def _topics(self, partitions: Mapping[str, int], configs: Configs) -> Topics:
        dense = self._compacted(configs)
        limits = self._limits(configs)
        replies = frozenset(topic for topic, setting in self._written.items() if setting == "REPLY_TOPICS")
        return Topics(
            partitions,
            limits,
            choose_membership(self._kafka, is_absent=self._can_administer and self._is_kip_848_absent()),
            notes=tuple(self._warnings),
            has_members=self._has_members,
            compacted=dense,
            replies=replies,
            can_administer=self._can_administer,
        ).shutting(self._shut)

    def _compacted(self, configs: Configs) -> frozenset[str]:
        """Warn of compacted topics: they drop requests unanswered. Returns the compacted topics that we write to."""
        dense = [
            topic
            for topic in used(self._kafka)
            if topic != self._kafka.changelog_topic
            and "compact" in (configs.get(topic) or {}).get("cleanup.policy", "")
        ]
        keeps = "is compacted: only the last record of each key is kept; set its cleanup.policy to delete"
        self._warnings += [f"topic {topic} {keeps}" for topic in dense]
        return frozenset(dense) & self._written.keys()

    # Topics

    def _found(self, setting: str, topic: str) -> TopicMetadata | None:
        try:
            found = look_up(self._admin, topic, self._timeout, self._new_topics_by).topics[topic]
        except KafkaException as error:
            self._problems.append(
                f"WORKER_KAFKA__{setting}: the broker does not say whether {topic} exists: {words_of(error)}"
            )
            return None
        if found.error is not None:
            operation = "READ" if setting == "REQUEST_TOPICS" else "WRITE"
            why = f"WORKER_KAFKA__{setting}: {why_unusable(topic, found.error, operation)}"
            self._object(setting, topic, why, "is not there")
        return found

    def _object(self, setting: str, topic: str, problem: str, why: str) -> None:
        """Note a problem, or only a warning for a reply topic, because that may belong to another owner."""
        if setting != "REPLY_TOPICS":
            self._problems.append(problem)
            return
        self._shut[topic] = f"it {why}, as the worker saw it at its start"
        self._warnings.append(f"{problem}; until a worker starts with it, requests that name it get an error")

    def _limits(self, configs: Configs) -> dict[str, int]:
        assumed = self._kafka.max_message_bytes or CAUTIOUS_LIMIT
        told = {topic: int(config[LIMIT_KEY]) for topic in self._written if (config := configs.get(topic))}
        for topic in self._written if self._kafka.max_message_bytes is None else ():
            if topic not in told and topic not in self._shut:
                why = f"the broker does not tell the size limit of topic {topic}, {assumed} bytes are assumed; grant"
                self._warnings.append(f"{why} DESCRIBE_CONFIGS on it or set WORKER_KAFKA__MAX_MESSAGE_BYTES")
        most = LARGEST_USUAL_RECORD
        if self._can_administer:
            most = largest_record(self._admin, next(iter(self._contact.cluster.brokers)), LIMIT_TIMEOUT)
        return {topic: min(most, told.get(topic, assumed)) for topic in self._written}

    # The changelog

    def _check_changelog(self, partitions: Mapping[str, int]) -> None:
        """Check that each partition of requests has a partition of states."""
        changelog, (requests, *_) = self._kafka.changelog_topic, self._kafka.request_topics
        if changelog and 0 < partitions[changelog] != partitions[requests] > 0:
            self._problems.append(
                f"WORKER_KAFKA__CHANGELOG_TOPIC: {changelog} has {partitions[changelog]} partitions and {requests} has "
                f"{partitions[requests]}, so keys left their states; name a new changelog, with which every key begins "
                "anew, or export the states and import them there"
            )

    def _check_compaction(self, configs: Configs) -> None:
        """Check that the changelog is compacted: other policies delete states that no request wrote for a while."""
        if (changelog := self._kafka.changelog_topic) is None:
            return
        if (config := configs[changelog]) is None:
            self._warnings.append(f"the broker does not tell whether the changelog {changelog} is compacted")
        elif (policy := config.get("cleanup.policy")) != "compact":
            self._problems.append(
                f"WORKER_KAFKA__CHANGELOG_TOPIC: {changelog} has cleanup.policy={policy}, which deletes the states "
                "of keys that no request wrote for a while; set it to compact"
            )
        elif not self._with_transactions and int(config.get(LAG_KEY, 0)) < int(CHANGELOG_CONFIGS[LAG_KEY]):
            why = (
                f"the changelog {changelog} has {LAG_KEY}={config.get(LAG_KEY, 0)}: requests that come again after a "
                f"kill may miss the state before them; set it to {CHANGELOG_CONFIGS[LAG_KEY]}, an hour, or more"
            )
            self._warnings.append(why)

    # Rights, and the group

    def _check_access(self) -> None:
        rights = needed(self._kafka)
        names = TopicCollection([right.name for right in rights if right.kind == "topic"])
        asked = self._admin.describe_topics(names, include_authorized_operations=True, request_timeout=self._timeout)
        for right in rights:
            if right.kind == "topic":
                self._require(right, partial(asked[right.name].result, self._timeout))
            elif self._can_administer:
                log = self._contact.log
                self._require(right, partial(described_group, self._kafka, right.name, self._timeout, log))

    def _require(self, right: Right, described: Callable[[], TopicDescription | ConsumerGroupDescription]) -> None:
        """Check one right. If the broker does not tell, we assume the right: if it is missing, its first use fails."""
        try:
            found = described()
        except (KafkaException, TimeoutError) as error:
            code = TIMED_OUT if isinstance(error, TimeoutError) else error.args[0].code()
            # A topic that we may not see is among the problems already.
            if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
                self._problems.append(missing(right, right.operation.lower()))
            if code == TIMED_OUT and right.kind == "topic" and self._can_administer:
                self._give_up()
            return
        if isinstance(found, ConsumerGroupDescription):
            self._has_members = bool(found.members)
        allowed: Collection[object] | None = found.authorized_operations  # None from an old broker
        if allowed is not None and AclOperation[right.operation.upper()] not in allowed:
            refused = missing(right, right.operation.lower())
            self._object(right.setting, right.name, refused, "may not be written")

    def _give_up(self) -> None:
        """Explain a timeout. Only the first contact uses our address; all others use what a broker advertises."""
        self._admin.poll(0)  # hear the client's errors
        if why := explained(self._kafka, self._contact.log.last):
            self._can_administer = False
            self._problems.append(why)

    def _is_kip_848_absent(self) -> bool:
        """True if the broker says that a group has no configuration, as brokers before KIP-848 do to any client."""
        resource = ConfigResource(ResourceType.GROUP, self._kafka.group_id)
        asked = self._admin.describe_configs([resource], request_timeout=self._timeout)
        try:
            return SESSION_KEY not in asked[resource].result(self._timeout)
        except TimeoutError:
            return False
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.INVALID_REQUEST)


def _replication(topic: TopicMetadata) -> int:
    return min((len(partition.replicas) for partition in topic.partitions.values()), default=0)

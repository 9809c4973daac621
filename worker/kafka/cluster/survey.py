"""The questions of `check` beyond a start's: how far the group is, who else reads, and what an operator may regret.

A broker that does not tell leaves the fact out. Changes nothing, except for `create_missing`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewTopic

from worker.core.failures import BadConfiguration
from worker.core.records import Partition
from worker.kafka.client.command_clients import client_log
from worker.kafka.client.config import admin_config, consumer_config, producer_config
from worker.kafka.client.connecting import Contact
from worker.kafka.client.errors import configuring, words_of
from worker.kafka.client.log import ClientLog
from worker.kafka.client.membership import Announcement
from worker.kafka.cluster.access import CHANGELOG_CONFIGS, Finding, acl_command, used, wished
from worker.kafka.cluster.admin_answers import LIMIT_KEY, group_if_told, told
from worker.kafka.cluster.examination import ABSENT, StartVerdict, TopicFacts, Topics, compacted
from worker.kafka.cluster.losses import bounds, committed
from worker.settings import KafkaSettings

# Partitions of a topic that is made before any request topic is there: as many replicas can share one.
PARTITIONS = 12
# Each is a request of its own: 200 groups took 0.1 s of a broker on the same machine (2026-11-26).
MOST_GROUPS = 200
# States of groups that have members. A group without says not what it is.
_IN_USE = {
    ConsumerGroupState.STABLE,
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
}


@dataclass(frozen=True, slots=True)
class Progress:
    """The group on one request topic. `waiting` records are not committed, `expired` ones were deleted before."""

    topic: str
    partitions: int
    partitions_committed: int
    waiting: int
    expired: int


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """Our consumer group as it is now. `state` is `dead` for one that does not exist."""

    state: str
    members: int
    progress: Sequence[Progress]


@dataclass(frozen=True, slots=True)
class Survey:
    """The cluster. `other_groups`: other workers' groups that read our request topics, each with one of the topics."""

    brokers: Sequence[str]
    topics: Sequence[TopicFacts]
    group: GroupFacts | None
    other_groups: Mapping[str, str]


def survey(kafka: KafkaSettings, contact: Contact, verdict: StartVerdict, timeout: float) -> Survey:
    """Look around. Takes some tens of milliseconds, and at most a few times `timeout` seconds."""
    brokers = [f"{broker.host}:{broker.port}" for _, broker in sorted(contact.cluster.brokers.items())]
    if not verdict.can_administer:
        return Survey(brokers, verdict.seen, None, {})
    group = _group(kafka, contact.admin, verdict.seen, timeout)
    return Survey(brokers, verdict.seen, group, other_groups(kafka, timeout, client_log()))


def _group(kafka: KafkaSettings, admin: AdminClient, topics: Sequence[TopicFacts], timeout: float) -> GroupFacts | None:
    described = group_if_told(kafka, kafka.group_id, timeout, client_log())
    if described is None:
        return None
    requests = [topic for topic in topics if topic.setting == "REQUEST_TOPICS"]
    progress = [found for topic in requests if (found := _progress(kafka, admin, topic, timeout)) is not None]
    return GroupFacts(described.state.name.lower(), len(described.members), progress)


def _progress(kafka: KafkaSettings, admin: AdminClient, topic: TopicFacts, timeout: float) -> Progress | None:
    partitions = [Partition(topic.name, number) for number in range(topic.partitions)]
    found = bounds(admin, partitions, timeout)
    known = committed(kafka, kafka.group_id, partitions, timeout)
    if known is None or found is None:
        return None
    begins, ends = found
    starts = {at: known.get(at, (ends if kafka.auto_offset_reset == "latest" else begins)[at]) for at in ends}
    return Progress(
        topic.name,
        topic.partitions,
        len(known),
        waiting=sum(max(0, ends[at] - max(starts[at], begins[at])) for at in ends),
        expired=sum(max(0, begins[at] - offset) for at, offset in known.items()),
    )


def other_groups(kafka: KafkaSettings, timeout: float, log: ClientLog) -> dict[str, str]:
    """The groups of other deployments that read our request topics, each with one of them; most often none.

    Each of them answers all of the topic's requests, and nothing fails. A start does not ask: a coordinator that
    answers after its question has timed out ends the process (see `described_group`).
    """
    admin = AdminClient(admin_config(kafka), logger=log)
    try:
        listing = told(admin.list_consumer_groups(states=_IN_USE, request_timeout=timeout), timeout)
        groups = sorted({group.group_id for group in listing.valid} - {kafka.group_id} if listing else ())[:MOST_GROUPS]
        asked = admin.describe_consumer_groups(groups, request_timeout=timeout) if groups else {}
        found = [description for one in asked.values() if (description := told(one, timeout)) is not None]
    except KafkaException:
        return {}
    finally:
        del admin  # with its questions
    return reading(found, kafka.request_topics)


def reading(groups: Iterable[ConsumerGroupDescription], topics: Collection[str]) -> dict[str, str]:
    """The groups in which a worker reads one of these topics, each with the topic."""
    return {
        group.group_id: at.topic
        for group in groups
        for member in group.members
        if Announcement.read(member.client_id) is not None
        for at in member.assignment.topic_partitions
        if at.topic in topics
    }


def create_missing(kafka: KafkaSettings, contact: Contact, timeout: float) -> Mapping[str, int]:
    """Make the topics that are not there. Returns them with their partitions: as many as the first request topic has.

    Raises `BadConfiguration` where that is not allowed.
    """
    if contact.is_mock:
        raise BadConfiguration(f"{kafka.bootstrap_servers} is a mock, which makes no topics")
    topics = used(kafka)
    known = {topic: contact.admin.list_topics(topic=topic, timeout=timeout).topics[topic] for topic in topics}
    absent = [topic for topic, found in known.items() if found.error is not None and found.error.code() == ABSENT]
    partitions = len(known[kafka.request_topics[0]].partitions) or PARTITIONS
    wanted = [
        NewTopic(topic, partitions, config=dict(CHANGELOG_CONFIGS) if topic == kafka.changelog_topic else {})
        for topic in absent
    ]
    for topic, made in (contact.admin.create_topics(wanted, request_timeout=timeout) if wanted else {}).items():
        try:
            made.result(timeout)
        except KafkaException as error:
            raise BadConfiguration(
                f"WORKER_KAFKA__{topics[topic]}: topic {topic} could not be created: {words_of(error)}"
            ) from error
    return dict.fromkeys(absent, partitions)


def try_clients(kafka: KafkaSettings, topics: Topics) -> None:
    """Make the clients that a worker makes. Raises `BadConfiguration` when one refuses its configuration."""
    with configuring("consumer"):
        Consumer({**consumer_config(kafka, topics.membership)}, logger=client_log()).close()
    with configuring("producer"):
        Producer({**producer_config(kafka, topics.largest_message, topics.largest_batch)}, logger=client_log())


# Facts that are no problem yet


def advice(kafka: KafkaSettings, found: Survey, topics: Topics | None) -> list[Finding]:
    """The facts that a worker can live with and its operator may regret, the worst first."""
    texts = [
        *(compacted(topic.name) for topic in found.topics if _is_dense(topic)),
        *(text for progress in (found.group.progress if found.group else ()) for text in _of_progress(kafka, progress)),
        *(
            f"group {group} also reads topic {topic}, and answers each of its requests, too: a second model needs "
            "topics of its own"
            for group, topic in found.other_groups.items()
        ),
        *_copies(found.topics),
    ]
    return [*map(Finding, texts), *_untold(kafka, found, topics)]


def _is_dense(topic: TopicFacts) -> bool:
    return "compact" in (topic.config or {}).get("cleanup.policy", "") and topic.setting != "CHANGELOG_TOPIC"


def _of_progress(kafka: KafkaSettings, progress: Progress) -> Iterator[str]:
    if progress.expired:
        yield (
            f"topic {progress.topic}: {progress.expired:,} requests were deleted before the group answered them; "
            "raise the topic's retention.ms, or start more replicas"
        )
    fresh = progress.partitions - progress.partitions_committed
    begins = f"topic {progress.topic}: the group has no offset for {fresh} of {progress.partitions} partitions"
    reset = f"WORKER_KAFKA__AUTO_OFFSET_RESET={kafka.auto_offset_reset}"
    if kafka.auto_offset_reset == "error" and fresh:
        yield f"{begins}, and by {reset} a worker stops there; set the offsets by hand, or choose earliest or latest"
    elif kafka.auto_offset_reset == "latest" and fresh:
        yield f"{begins}, and by {reset} the requests that are there are passed over; choose earliest if not"
    elif fresh == progress.partitions and progress.waiting:
        yield (
            f"topic {progress.topic}: the group is new, and will answer all {progress.waiting:,} requests that are "
            "there; with WORKER_KAFKA__AUTO_OFFSET_RESET=latest it passes them over"
        )


def _copies(topics: Sequence[TopicFacts]) -> Iterator[str]:
    if single := [topic.name for topic in topics if topic.replication == 1]:
        yield (
            f"{', '.join(single)}: on one broker only (replication factor 1): with its disk, records are lost, and "
            "while it is away nothing is answered"
        )
    several = [topic for topic in topics if topic.replication > 1]
    if lone := [t.name for t in several if (t.config or {}).get("min.insync.replicas") == "1"]:
        yield f"{', '.join(lone)}: min.insync.replicas=1, so that an acknowledged record may be on one broker; set 2"


def _untold(kafka: KafkaSettings, found: Survey, topics: Topics | None) -> Iterator[Finding]:
    """The rights that are no must, with what we miss without them; and a dead-letter topic that is too small."""
    if topics is None or not topics.can_administer:
        return
    silent = {topic.name for topic in found.topics if topic.config is None} & topics.max_bytes.keys()
    for right in wished(kafka):
        if right.name in silent and right.kind == "topic" and kafka.max_message_bytes is None:
            yield Finding(
                f"topic {right.name}: the broker does not tell its size limit, {topics.max_bytes[right.name]:,} bytes "
                "are assumed; grant DESCRIBE_CONFIGS on it, or set WORKER_KAFKA__MAX_MESSAGE_BYTES",
                acl_command(kafka, right),
            )
        elif right.kind == "group" and topics.membership.takeover_seconds is None:
            yield Finding(
                f"group {right.name}: the broker does not tell how long a killed replica keeps its partitions; grant "
                "DESCRIBE_CONFIGS on it to know",
                acl_command(kafka, right),
            )
    for topic in found.topics:
        kept = int((topic.config or {}).get(LIMIT_KEY, 0))
        if topic.setting == "DEAD_LETTER_TOPIC" and 0 < kept < kafka.max_request_bytes:
            yield Finding(
                f"topic {topic.name} takes records of {kept:,} bytes, fewer than WORKER_KAFKA__MAX_REQUEST_BYTES: "
                "larger rejected requests are kept without their value; raise its max.message.bytes"
            )

"""Facts that an operator should know as well: other readers, the losses of a group, and choices that may be regretted.

While none of its workers runs, a group may lose offsets of some partitions, or states although the offsets go on.
Nothing else tells: a partition without an offset looks like a new one. A loss is reported, and no start is refused.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewTopic, OffsetSpec

from worker.core.failures import BadConfiguration, listed
from worker.core.records import Partition
from worker.kafka.client.command_clients import client_log, open_client
from worker.kafka.client.config import Config, admin_config, consumer_config, producer_config
from worker.kafka.client.connecting import Contact
from worker.kafka.client.errors import GONE, ClientLog, configuring, words_of
from worker.kafka.client.membership import CLIENT_ID
from worker.kafka.cluster.admin_answers import OUTLASTING, told, told_offset
from worker.kafka.cluster.examination import TopicFacts
from worker.kafka.cluster.topics import CHANGELOG_CONFIGS, Topics, used
from worker.settings import Connection, KafkaSettings

# Partitions of a topic that is made before any request topic exists: as many replicas can share it.
PARTITIONS = 12
# Each group is a request of its own: 200 groups took 0.1 s of a local broker (2026-11-26).
MOST_GROUPS = 200
# States of groups that have members. A group without members does not say what it is.
_IN_USE = {
    ConsumerGroupState.STABLE,
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
}

TIMEOUT = 5.0  # seconds of each of two questions, on which no start depends
UNKNOWN = "whether the group has lost offsets, or states, is not known: the cluster does not tell its offsets now"
_AS_IT_IS: Config = {"isolation.level": "read_uncommitted"}  # otherwise the client waits for an open transaction
# The fate of records without an offset of the group, by AUTO_OFFSET_RESET.
_RESETS = {
    "earliest": "are read from the beginning, and what was answered before is answered again",
    "latest": "are passed over unanswered",
    "error": "are not read, and the worker that is given them ends",
}


def other_groups(kafka: KafkaSettings, timeout: float, log: ClientLog) -> dict[str, str]:
    """The groups of other deployments that read, and so answer, our request topics, each with one such topic.

    A client of its own asks, and is deleted then: see `OUTLASTING`.
    """
    admin = AdminClient(admin_config(kafka), logger=log)
    try:
        listing = told(admin.list_consumer_groups(states=_IN_USE, request_timeout=OUTLASTING), timeout)
        groups = sorted({group.group_id for group in listing.valid} - {kafka.group_id} if listing else ())[:MOST_GROUPS]
        asked = admin.describe_consumer_groups(groups, request_timeout=OUTLASTING) if groups else {}
        give_up = time.monotonic() + timeout
        described = [told(one, max(0.0, give_up - time.monotonic())) for one in asked.values()]
    except KafkaException:
        return {}
    finally:
        del admin  # with its questions
    return reading(filter(None, described), kafka.request_topics)


def reading(groups: Iterable[ConsumerGroupDescription], topics: Collection[str]) -> dict[str, str]:
    """The groups in which a worker reads one of these topics, each with the topic."""
    return {
        group.group_id: at.topic
        for group in groups
        for member in group.members
        if member.client_id.startswith(f"{CLIENT_ID}/")
        for at in member.assignment.topic_partitions
        if at.topic in topics
    }


def create_missing(kafka: KafkaSettings, contact: Contact, timeout: float) -> Mapping[str, int]:
    """Make the topics that are not there, and return them with their partitions. Raises `BadConfiguration`."""
    if contact.is_mock:
        raise BadConfiguration(f"{kafka.bootstrap_servers} is a mock, which makes no topics")
    topics = used(kafka)
    known = {topic: contact.admin.list_topics(topic=topic, timeout=timeout).topics[topic] for topic in topics}
    absent = [topic for topic, found in known.items() if found.error is not None and found.error.code() in GONE]
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


def losses(kafka: KafkaSettings, topics: Topics) -> list[str]:
    """A sentence for each loss that the cluster shows. Members of the group told theirs at their start. Takes 70 ms."""
    if topics.has_members or not topics.can_administer:
        return []
    requests = [
        Partition(topic, number) for topic in kafka.request_topics for number in range(topics.partitions[topic])
    ]
    changelog = kafka.changelog_topic
    states = [Partition(changelog, number) for number in range(topics.partitions[changelog])] if changelog else []
    known = committed(kafka, requests)
    if known is not None and not known:  # the group is new
        return []
    logs = extents(kafka, [*requests, *states])
    if known is None or logs is None:
        return [UNKNOWN]
    said: list[str] = []
    if lost := [at for at in requests if at not in known and logs[at]]:
        said.append(
            f"group {kafka.group_id} has no offset for {len(lost)} of {len(requests)} partitions with requests "
            f"({listed(lost)}), and offsets for {len(known)}: by AUTO_OFFSET_RESET their "
            f"{sum(len(logs[at]) for at in lost):,} records {_RESETS[kafka.auto_offset_reset]}; to go on elsewhere "
            "stop all workers, and set the offsets with `kafka-consumer-groups.sh --reset-offsets`"
        )
    passed = {at.number for at, offset in known.items() if offset > 0}
    if gone := [at for at in states if logs[at].start > 0 or (at.number in passed and not logs[at])]:
        said.append(
            f"the changelog is empty, or its first records were deleted, in {len(gone)} of {len(states)} partitions "
            f"({listed(gone)}) of which requests were answered: keys with states in there begin anew; if that is not "
            "meant, stop all workers and bring a backup back (`state import`)"
        )
    return said


def extents(kafka: Connection, partitions: Collection[Partition]) -> Mapping[Partition, range] | None:
    """The offsets from the beginning to the end of each log; None if a leader does not tell."""
    admin = AdminClient(admin_config(kafka), logger=client_log())
    specs = (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the client declares no types there
    asked = [
        admin.list_offsets({TopicPartition(*at): spec for at in partitions}, request_timeout=TIMEOUT) for spec in specs
    ]
    begins, ends = (
        {Partition(at.topic, at.partition): told_offset(future, TIMEOUT) for at, future in futures.items()}
        for futures in asked
    )
    logs = {
        at: range(begin, end) for at, begin in begins.items() if begin is not None and (end := ends[at]) is not None
    }
    return logs if len(logs) == len(partitions) else None


def committed(kafka: KafkaSettings, partitions: Collection[Partition]) -> Mapping[Partition, int] | None:
    """The group's next offset of each partition that has one; None if its coordinator does not tell.

    The admin client's `list_consumer_group_offsets` ends the process when the coordinator has moved (librdkafka 2.16).
    """
    promised = {"group.id": kafka.group_id, "enable.auto.commit": False}
    consumer = open_client(Consumer, kafka, _AS_IT_IS, promised, client_log())
    try:
        found = consumer.committed([TopicPartition(*at) for at in partitions], TIMEOUT)
    except KafkaException:
        return None
    finally:
        consumer.close()
    if any(at.error is not None for at in found):
        return None
    return {Partition(at.topic, at.partition): at.offset for at in found if at.offset >= 0}


def advice(topics: Sequence[TopicFacts], others: Mapping[str, str]) -> Iterator[str]:
    """The facts that a worker can live with and its operator may regret, each a sentence."""
    for group, topic in others.items():
        yield (
            f"group {group} also reads topic {topic}, and answers each of its requests, too: a second model needs "
            "topics of its own"
        )
    if single := [topic.name for topic in topics if topic.replication == 1]:
        yield (
            f"{', '.join(single)}: on one broker only (replication factor 1): with its disk, records are lost, and "
            "while it is away nothing is answered"
        )

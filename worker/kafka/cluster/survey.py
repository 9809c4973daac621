"""The questions of `check` beyond a start's: who else reads, whether the clients can be made, what may be regretted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewTopic

from worker.core.failures import BadConfiguration
from worker.kafka.client.command_clients import client_log
from worker.kafka.client.config import admin_config, consumer_config, producer_config
from worker.kafka.client.connecting import Contact
from worker.kafka.client.errors import GONE, ClientLog, configuring, words_of
from worker.kafka.client.membership import CLIENT_ID
from worker.kafka.cluster.access import CHANGELOG_CONFIGS, used
from worker.kafka.cluster.admin_answers import LIMIT_KEY, told
from worker.kafka.cluster.examination import TopicFacts
from worker.kafka.cluster.topics import Topics
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


def other_groups(kafka: KafkaSettings, timeout: float, log: ClientLog) -> dict[str, str]:
    """The groups of other deployments that read our request topics, each with one of them: they answer them, too.

    A start does not ask: an answer after its question has timed out ends the process (see `described_group`).
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
        if member.client_id.startswith(CLIENT_ID)
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


def advice(kafka: KafkaSettings, topics: Sequence[TopicFacts], others: Mapping[str, str]) -> Iterator[str]:
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
    for each in topics:
        kept = int((each.config or {}).get(LIMIT_KEY, 0))
        if each.setting == "DEAD_LETTER_TOPIC" and 0 < kept < kafka.max_request_bytes:
            yield (
                f"topic {each.name} takes records of {kept:,} bytes, fewer than WORKER_KAFKA__MAX_REQUEST_BYTES: "
                "larger rejected requests are kept without their value; raise its max.message.bytes"
            )

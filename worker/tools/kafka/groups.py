"""Who is in a consumer group, and which groups read a topic."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from worker.core.failures import BadConfiguration
from worker.core.records import Partition
from worker.kafka.client.command_clients import ANSWER_TIMEOUT, client_log
from worker.kafka.client.config import admin_config
from worker.kafka.client.errors import words_of
from worker.kafka.cluster.admin_answers import described_group, told
from worker.kafka.cluster.losses import committed
from worker.settings import Connection

_ALL_OFFSETS = 10.0  # seconds that a person waits for the last names


def members_of(kafka: Connection, group: str) -> int:
    """How many members a group has; 0 for one that does not exist. Raises `BadConfiguration` where none will tell."""
    try:
        return len(described_group(kafka, group, ANSWER_TIMEOUT, client_log()).members)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return 0
        raise BadConfiguration(
            f"whether group {group} has members is not known: {words_of(error)}; grant DESCRIBE on it"
        ) from error
    except TimeoutError:
        raise BadConfiguration(f"whether group {group} has members is not known: no answer in time") from None


class TopicReader(NamedTuple):
    """A group with committed offsets in the topic, or with members that read it now."""

    group: str
    members: int

    def __str__(self) -> str:
        return f"{self.group} ({'no member now' if not self.members else f'members: {self.members}'})"


def readers_of(kafka: Connection, topics: Collection[str]) -> Mapping[str, list[TopicReader]]:
    """Of each topic, as far as the brokers tell: they name the groups that this client may describe.

    An admin client of its own asks, and goes with the answer: see `described_group`. Offsets are asked for where no
    member reads the topic, group by group (20 ms each), and no longer than `_ALL_OFFSETS`.
    """
    if not topics:
        return {}
    admin = AdminClient(admin_config(kafka), logger=client_log())
    listed = told(admin.list_consumer_groups(request_timeout=ANSWER_TIMEOUT), ANSWER_TIMEOUT)
    groups = sorted(group.group_id for group in listed.valid) if listed is not None else []
    described = admin.describe_consumer_groups(groups, request_timeout=ANSWER_TIMEOUT) if groups else {}
    members = {group: _members(told(one, ANSWER_TIMEOUT)) for group, one in described.items()}
    known = admin.list_topics(timeout=ANSWER_TIMEOUT).topics
    partitions = [Partition(topic, number) for topic in topics if topic in known for number in known[topic].partitions]
    found: dict[str, list[TopicReader]] = {topic: [] for topic in topics}
    until = time.monotonic() + _ALL_OFFSETS
    for group in groups:
        unread = [at for at in partitions if at.topic not in members[group]]
        may_ask = unread and time.monotonic() < until
        held = {at.topic for at in (committed(kafka, group, unread, ANSWER_TIMEOUT) if may_ask else None) or ()}
        for topic in topics:
            if topic in held or topic in members[group]:
                found[topic].append(TopicReader(group, members[group].get(topic, 0)))
    return found


def _members(group: ConsumerGroupDescription | None) -> Mapping[str, int]:
    """How many of the group's members read each topic."""
    members: Counter[str] = Counter()
    for member in group.members if group is not None else ():
        members.update({at.topic for at in member.assignment.topic_partitions})
    return members

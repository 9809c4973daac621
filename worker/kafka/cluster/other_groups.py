"""Which other consumer groups of workers read a topic: each of them answers all of its requests, and nothing fails.

Asked for by `check` and `init`, not by a start: a coordinator that answers after its question has timed out ends the
process (librdkafka 2.16, see `described_group`). Only groups with members are looked at, since a group without says
not what it is; and `MOST_GROUPS` of them at most. What the broker does not tell, or forbids, is taken for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from worker.kafka.client.announcement import Announcement
from worker.kafka.client.config import admin_config
from worker.kafka.client.log import ClientLog
from worker.kafka.cluster.admin_answers import told
from worker.settings import KafkaSettings

# Each is a request of its own: 200 groups took 0.1 s of a broker on the same machine (2026-11-26).
MOST_GROUPS = 200
# States of groups that have members.
_IN_USE = {
    ConsumerGroupState.STABLE,
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
}


def other_groups(kafka: KafkaSettings, timeout: float, log: ClientLog) -> dict[str, str]:
    """The groups of other deployments that read our request topics, each with one of them; most often none."""
    admin = AdminClient(admin_config(kafka), logger=log)
    try:
        groups = [group for group in _groups_in_use(admin, timeout) if group != kafka.group_id][:MOST_GROUPS]
        asked = admin.describe_consumer_groups(groups, request_timeout=timeout) if groups else {}
        found = [description for one in asked.values() if (description := told(one, timeout)) is not None]
    except KafkaException:
        return {}
    finally:
        del admin  # with its questions
    return reading(found, kafka.request_topics)


def _groups_in_use(admin: AdminClient, timeout: float) -> list[str]:
    listing = told(admin.list_consumer_groups(states=_IN_USE, request_timeout=timeout), timeout)
    return sorted(group.group_id for group in listing.valid) if listing else []


def reading(groups: Iterable[ConsumerGroupDescription], topics: Collection[str]) -> dict[str, str]:
    """Those in which a worker reads one of these topics, each with the topic."""
    return {
        group.group_id: at.topic
        for group in groups
        for member in group.members
        if Announcement.read(member.client_id) is not None
        for at in member.assignment.topic_partitions
        if at.topic in topics
    }

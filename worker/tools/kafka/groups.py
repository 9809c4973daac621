"""The members of consumer groups.

Each question is asked by an admin client that goes with its answer: a coordinator that answers late would end the
process (see `described_group`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from worker.core.failures import BadConfiguration
from worker.kafka.client.command_clients import ANSWER_TIMEOUT, client_log
from worker.kafka.client.config import admin_config
from worker.kafka.client.errors import words_of
from worker.kafka.cluster.admin_answers import described_group, told
from worker.settings import Connection


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


def members_by_group(kafka: Connection, topics: Collection[str]) -> Mapping[str, Mapping[str, int]]:
    """How many members of each group read each topic now, of the groups that this client may describe."""
    admin = AdminClient(admin_config(kafka), logger=client_log())
    listed = told(admin.list_consumer_groups(request_timeout=ANSWER_TIMEOUT), ANSWER_TIMEOUT)
    names = sorted(group.group_id for group in listed.valid) if listed is not None else []
    described = admin.describe_consumer_groups(names, request_timeout=ANSWER_TIMEOUT) if names else {}
    found: dict[str, dict[str, int]] = {topic: {} for topic in topics}
    for name, asked in described.items():
        group = told(asked, ANSWER_TIMEOUT)
        for member in group.members if group is not None else ():
            for topic in {at.topic for at in member.assignment.topic_partitions}.intersection(topics):
                found[topic][name] = found[topic].get(name, 0) + 1
    return found

"""The members of consumer groups."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from worker.core.failures import BadConfiguration
from worker.kafka.client.command_clients import ANSWER_TIMEOUT, client_log
from worker.kafka.client.errors import words_of
from worker.kafka.cluster.admin_answers import described_group
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

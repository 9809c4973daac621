"""Topics that are missing, made as the settings need them: `check --create-topics`, and nothing else, makes any."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from worker.core.failures import BadConfiguration
from worker.kafka.client.connecting import Contact
from worker.kafka.client.errors import words_of
from worker.kafka.cluster.access import CHANGELOG_CONFIGS, PARTITIONS, used
from worker.settings import KafkaSettings


def create_missing(kafka: KafkaSettings, contact: Contact, timeout: float) -> Mapping[str, int]:
    """Make the topics that are not there. Returns them with their partitions: as many as the first request topic has.

    Raises `BadConfiguration` where that is not allowed.
    """
    if contact.is_mock:
        raise BadConfiguration(f"{kafka.bootstrap_servers} is a mock, which makes no topics")
    topics = used(kafka)
    known = {topic: contact.admin.list_topics(topic=topic, timeout=timeout).topics[topic] for topic in topics}
    absent = [
        topic
        for topic, found in known.items()
        if found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    ]
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

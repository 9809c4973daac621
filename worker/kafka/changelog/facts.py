"""By what one changelog is told from another, whatever its name: asked of the cluster where states are kept."""

from __future__ import annotations

import logging
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from worker.kafka.client.config import admin_config
from worker.kafka.client.log import ClientLog
from worker.kafka.cluster.admin_answers import told, topic_configs
from worker.settings import KafkaSettings

TIMEOUT = 5.0  # of each question; the cluster was examined a moment ago


class ChangelogFacts(NamedTuple):
    """`retention`: for how many seconds it keeps at least that a key was forgotten (`delete.retention.ms`)."""

    cluster_id: str
    topic_id: str
    retention: float


def changelog_facts(kafka: KafkaSettings, topic: str, logger: logging.Logger) -> ChangelogFacts | None:
    """None where the cluster does not tell all of them."""
    admin = AdminClient(admin_config(kafka), logger=ClientLog(logger))
    try:
        cluster = told(admin.describe_cluster(request_timeout=TIMEOUT), TIMEOUT)
        described = told(admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT)[topic], TIMEOUT)
        configs = topic_configs(admin, [topic], ["delete.retention.ms"], TIMEOUT)[topic]
    except KafkaException:
        return None
    if cluster is None or cluster.cluster_id is None or described is None or not configs:
        return None
    return ChangelogFacts(cluster.cluster_id, str(described.topic_id), int(configs["delete.retention.ms"]) / 1000)

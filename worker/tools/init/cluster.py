"""What `init` finds of a cluster: which topics it has, or why that is not known. Asks, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from worker.core.failures import BadConfiguration
from worker.kafka.client.command_clients import ANSWER_TIMEOUT, NO_LOG, client_log, near_topics, topics_told
from worker.kafka.client.connecting import connect
from worker.kafka.cluster.access import used
from worker.kafka.cluster.survey import other_groups
from worker.settings import KafkaSettings
from worker.terminal.terminal import count


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """The topics that we may see, with their partitions.

    `meant`: which of them a topic of ours that is not there may have been meant for, as the end of a sentence.
    `shared_with`: other groups of workers that read our request topics, each with one of them.
    `silence`: why nothing is known of the cluster; empty when it answered.
    """

    brokers: int = 0
    partitions: Mapping[str, int] = field(default_factory=dict)
    meant: Mapping[str, str] = field(default_factory=dict)
    shared_with: Mapping[str, str] = field(default_factory=dict)
    silence: str = ""

    def told_of(self, topic: str) -> str:
        """What is known of one topic."""
        if self.silence:
            return f"{topic} was not looked for"
        if (partitions := self.partitions.get(topic)) is None:
            return f"{topic} is not there yet: `check --create-topics` makes it{self.meant.get(topic, '')}"
        return f"{topic} has {count(partitions, 'partition')}"


def look_at_cluster(kafka: KafkaSettings) -> ClusterSeen:
    """A cluster that does not answer is no failure: a file can be written without it."""
    try:
        contact = connect(kafka, NO_LOG, ANSWER_TIMEOUT, kafka.response_topic)
    except BadConfiguration as refusal:
        return ClusterSeen(silence=str(refusal))
    there, ours = topics_told(contact.admin, ANSWER_TIMEOUT), used(kafka)
    absent = [topic for topic in ours if topic not in there]
    meant = {topic: near_topics(contact.admin, topic, ANSWER_TIMEOUT, ours) for topic in absent}
    shared = {} if contact.is_mock else other_groups(kafka, ANSWER_TIMEOUT, client_log())
    return ClusterSeen(len(contact.cluster.brokers), there, meant, shared)

"""What `check` tells of a cluster beyond what a worker must know to start: brokers, and how far the group is.

Asks and tells, judges nothing; what the broker does not tell is None. `contact` must be of these settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient

from worker.core.records import Partition
from worker.kafka.client.command_clients import client_log
from worker.kafka.client.connecting import Contact
from worker.kafka.cluster.admin_answers import group_if_told
from worker.kafka.cluster.examination import StartVerdict, TopicFacts
from worker.kafka.cluster.losses import bounds, committed
from worker.kafka.cluster.other_groups import other_groups
from worker.settings import KafkaSettings


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
    """The cluster. `controller` is None for librdkafka's mock, which answers nothing else either.

    `other_groups`: those of other workers that read our request topics, each with one of them.
    """

    brokers: Sequence[str]
    controller: str | None
    topics: Sequence[TopicFacts]
    group: GroupFacts | None
    other_groups: Mapping[str, str] = field(default_factory=dict)


def survey(kafka: KafkaSettings, contact: Contact, verdict: StartVerdict, timeout: float) -> Survey:
    """Look around. Takes some tens of milliseconds, and at most a few times `timeout` seconds."""
    cluster = contact.cluster
    brokers = {number: f"{broker.host}:{broker.port}" for number, broker in sorted(cluster.brokers.items())}
    group = _Surveyor(kafka, contact, timeout).group(verdict.seen) if verdict.can_administer else None
    others = other_groups(kafka, timeout, client_log()) if verdict.can_administer else {}
    return Survey(list(brokers.values()), brokers.get(cluster.controller_id), verdict.seen, group, others)


class _Surveyor:
    """Asks how far the group is."""

    def __init__(self, kafka: KafkaSettings, contact: Contact, timeout: float) -> None:
        self._kafka = kafka
        self._admin: AdminClient = contact.admin
        self._timeout = timeout

    def group(self, topics: Sequence[TopicFacts]) -> GroupFacts | None:
        described = group_if_told(self._kafka, self._kafka.group_id, self._timeout, client_log())
        if described is None:
            return None
        requests = [topic for topic in topics if topic.setting == "REQUEST_TOPICS"]
        progress = [found for topic in requests if (found := self._progress(topic)) is not None]
        return GroupFacts(described.state.name.lower(), len(described.members), progress)

    def _progress(self, topic: TopicFacts) -> Progress | None:
        partitions = [Partition(topic.name, number) for number in range(topic.partitions)]
        found = bounds(self._admin, partitions, self._timeout)
        known = committed(self._kafka, self._kafka.group_id, partitions, self._timeout)
        if known is None or found is None:
            return None
        begins, ends = found
        is_latest = self._kafka.auto_offset_reset == "latest"
        starts = {at: known.get(at, ends[at] if is_latest else begins[at]) for at in ends}
        return Progress(
            topic.name,
            topic.partitions,
            len(known),
            waiting=sum(max(0, ends[at] - max(starts[at], begins[at])) for at in ends),
            expired=sum(max(0, begins[at] - offset) for at, offset in known.items()),
        )

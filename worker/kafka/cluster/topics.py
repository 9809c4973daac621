"""The topics of a worker, as the cluster describes them at the start, and the rights that a worker needs.

| resource | operation | without it |
|---|---|---|
| request topics | Read | refused at start |
| response topic, reply topics, dead-letter topic, changelog | Write | refused at start |
| changelog | Read | refused at start |
| the group | Read | refused at start |
| exactly once: the transactional id | Write | refused at start |
| response and reply topics, dead-letter topic | DescribeConfigs | their limit is assumed, or MAX_MESSAGE_BYTES |
| changelog, with STATE__DIRECTORY | DescribeConfigs | a clean stop leaves no states to the next start |

Read and Write imply Describe. No right on the cluster is needed: since Kafka 2.8 an idempotent producer needs no
IdempotentWrite. The right on transactional ids is for their common prefix, because each replica has its own id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from worker.kafka.client.membership import Membership, TransactionalId
from worker.settings import KafkaSettings

# The changelog's settings. The last hour is not compacted: with at-least-once delivery, the successor of a killed
# worker needs the state before the requests that it applies again.
LAG_KEY = "min.compaction.lag.ms"
CHANGELOG_CONFIGS: Mapping[str, str] = {"cleanup.policy": "compact", LAG_KEY: "3600000"}


@dataclass(frozen=True, slots=True)
class Topics:
    """The cluster's answers. By topic: the number of `partitions`, and `max_bytes`, the limit of a batch of records.

    `notes` are facts that an operator may want to mend, though the worker runs. `has_members`: our group has members.
    `compacted`: the topics we write to that are compacted, as far as the broker tells. `replies`: topics that requests
    may name, and that serve nothing else. `shut`: reply topics that get no answer, each with its reason, so that their
    owners stop no worker. `can_administer`: the cluster answers administrative requests.
    """

    partitions: Mapping[str, int]
    max_bytes: Mapping[str, int]
    membership: Membership
    notes: tuple[str, ...] = ()
    has_members: bool = False
    compacted: frozenset[str] = frozenset()
    replies: frozenset[str] = frozenset()
    shut: Mapping[str, str] = field(default_factory=dict)
    can_administer: bool = False

    @property
    def largest_message(self) -> int:
        """Bytes of the largest record that any topic we write to takes."""
        return max(self.max_bytes.values())

    @property
    def largest_batch(self) -> int:
        """Bytes of the largest batch that every topic we write to takes."""
        return min(self.max_bytes.values())

    def shutting(self, reasons: Mapping[str, str]) -> Topics:
        """A copy that shuts these reply topics, each with its reason."""
        shut = {**reasons, **self.shut}
        limits = {topic: limit for topic, limit in self.max_bytes.items() if topic not in shut}
        return replace(self, max_bytes=limits, replies=self.replies - shut.keys(), shut=shut)


class Right(NamedTuple):
    """One operation on one resource, spelled as `kafka-acls.sh` does, and the setting that names the resource."""

    setting: str
    kind: Literal["topic", "group", "transactional-id"]
    name: str
    operation: Literal["Read", "Write", "DescribeConfigs"]
    is_prefix: bool = False

    @property
    def variable(self) -> str:
        return f"WORKER_{'DELIVERY' if self.kind == 'transactional-id' else 'KAFKA'}__{self.setting}"


def needed(kafka: KafkaSettings) -> list[Right]:
    """The rights without which a worker does not start."""
    return [
        *(Right("REQUEST_TOPICS", "topic", topic, "Read") for topic in kafka.request_topics),
        *(Right(setting, "topic", topic, "Write") for topic, setting in written(kafka).items()),
        *([Right("CHANGELOG_TOPIC", "topic", kafka.changelog_topic, "Read")] if kafka.changelog_topic else []),
        Right("GROUP_ID", "group", kafka.group_id, "Read"),
    ]


def wished(kafka: KafkaSettings) -> list[Right]:
    """The rights that help a worker, but that it can do without."""
    return [Right(setting, "topic", topic, "DescribeConfigs") for topic, setting in written(kafka).items()]


def needed_for_transactions(name: TransactionalId) -> Right:
    """The right that a worker needs to start with exactly-once delivery."""
    is_prefix = name.family != name.text
    return Right("TRANSACTIONAL_ID", "transactional-id", name.family, "Write", is_prefix=is_prefix)


def missing(right: Right, verb: str) -> str:
    """The error text for a missing right. `verb` is the refused action, such as `write`."""
    kind = f"{right.kind.replace('-', ' ')}{'s that begin with' if right.is_prefix else ''}"
    return (
        f"{right.variable}: this client may not {verb} {kind} {right.name}; grant it the operation "
        f"{right.operation.upper()}"
    )


def written(kafka: KafkaSettings) -> dict[str, str]:
    """The topics that a worker writes to, each with the setting that names it."""
    topics = {kafka.response_topic: "RESPONSE_TOPIC"} | dict.fromkeys(kafka.reply_topics, "REPLY_TOPICS")
    if kafka.dead_letter_topic is not None:
        topics[kafka.dead_letter_topic] = "DEAD_LETTER_TOPIC"
    if kafka.changelog_topic is not None:
        topics[kafka.changelog_topic] = "CHANGELOG_TOPIC"
    return topics


def used(kafka: KafkaSettings) -> dict[str, str]:
    """All topics of a worker, each with the setting that names it."""
    topics = dict.fromkeys(kafka.request_topics, "REQUEST_TOPICS")
    return topics | written(kafka)

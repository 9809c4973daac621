"""What a worker can live with and its operator may regret: facts of a cluster that are no problem yet, as sentences.

Pure: from the settings and what the cluster told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from worker.kafka.cluster.access import Finding, acl_command, wished
from worker.kafka.cluster.examination import TopicFacts, Topics, compacted
from worker.kafka.cluster.survey import GroupFacts, Survey
from worker.settings import KafkaSettings

# A worker that fell over at night is mended in the morning: what is deleted before is lost unanswered.
SHORT_RETENTION_MS = 24 * 3600 * 1000
# What a record set adds to a value that is exactly as long as we take (61 + 36 bytes, and headers).
_RECORD_OVERHEAD = 1024
# A gzip batch of this size, Kafka's default, unpacks to 1.1 GB at most: what `deploy/README.md` leaves room for.
_USUAL_BATCH = 1_048_588
# A topic's other codecs make the broker pack each batch anew, and unpack to 255 times its size at most.
_EXPLOSIVE = ("producer", "gzip", "zstd")


def advice(kafka: KafkaSettings, found: Survey, topics: Topics | None) -> list[Finding]:
    """In the order of how much is at stake."""
    told = {topic.setting: topic for topic in found.topics}
    requests = [topic for topic in found.topics if topic.setting == "REQUEST_TOPICS"]
    return [
        *chain.from_iterable(_compacted(topic) for topic in found.topics),
        *_expired(found.group),
        *_shared(found),
        *_backlog(kafka, found.group),
        *_unread(kafka, found.group),
        *_retention(requests),
        *_copies(found.topics),
        *_parallel(requests),
        *_bombs(requests),
        *_originals(kafka, requests, told.get("DEAD_LETTER_TOPIC")),
        *_connection(kafka),
        *_untold(kafka, found, topics),
    ]


def _compacted(topic: TopicFacts) -> Iterator[Finding]:
    if "compact" not in _config(topic, "cleanup.policy") or topic.setting == "CHANGELOG_TOPIC":
        return
    if topic.setting == "REQUEST_TOPICS":
        why = "a request is dropped unanswered once a newer one has its key, and a null value is taken for a request"
        why += " unless WORKER_KAFKA__NULL_VALUE=skip"
        yield Finding(compacted(topic.name, why))
    else:
        yield Finding(compacted(topic.name))


def _expired(group: GroupFacts | None) -> Iterator[Finding]:
    for progress in group.progress if group else ():
        if progress.expired:
            yield Finding(
                f"topic {progress.topic}: {progress.expired:,} requests were deleted before the group answered them; "
                "raise the topic's retention.ms, or start more replicas"
            )


def _shared(found: Survey) -> Iterator[Finding]:
    for group, topic in found.other_groups.items():
        yield Finding(
            f"group {group} also reads topic {topic}, and answers each of its requests, too: a second model needs "
            "topics of its own"
        )


def _backlog(kafka: KafkaSettings, group: GroupFacts | None) -> Iterator[Finding]:
    """What a group that has committed nothing begins with; the two other choices are told by `_unread`."""
    for progress in group.progress if group and kafka.auto_offset_reset == "earliest" else ():
        if progress.waiting and not progress.partitions_committed:
            yield Finding(
                f"topic {progress.topic}: the group is new, and will answer all requests that are there already "
                f"({progress.waiting:,}); with WORKER_KAFKA__AUTO_OFFSET_RESET=latest it answers only those that come "
                "after its start"
            )


def _unread(kafka: KafkaSettings, group: GroupFacts | None) -> Iterator[Finding]:
    fresh = [p for p in group.progress if p.partitions_committed < p.partitions] if group else []
    for progress in fresh if kafka.auto_offset_reset != "earliest" else ():
        count = progress.partitions - progress.partitions_committed
        what = (
            f"topic {progress.topic}: the group has committed no offset for {count} of {progress.partitions} partitions"
        )
        if kafka.auto_offset_reset == "error":
            yield Finding(
                f"{what}, and WORKER_KAFKA__AUTO_OFFSET_RESET is error: a worker will stop there; set the group's "
                "offsets by hand, or choose earliest or latest"
            )
        else:
            yield Finding(
                f"{what}, and WORKER_KAFKA__AUTO_OFFSET_RESET is latest: requests that are there already will not be "
                "answered; choose earliest if they should be"
            )


def _retention(requests: Sequence[TopicFacts]) -> Iterator[Finding]:
    for topic in requests:
        retention = int(_config(topic, "retention.ms") or -1)
        if 0 <= retention < SHORT_RETENTION_MS:
            yield Finding(
                f"topic {topic.name} keeps requests for {duration(retention)}: those that wait longer, as after an "
                "outage, are deleted unanswered; raise its retention.ms"
            )


def _copies(topics: Sequence[TopicFacts]) -> Iterator[Finding]:
    if single := [topic.name for topic in topics if topic.replication == 1]:
        yield Finding(
            f"{_named(single)} on one broker only (replication factor 1): with its disk, records are lost, and while "
            "it is away nothing is answered"
        )
    several = [topic for topic in topics if topic.replication > 1]
    if lone := [topic.name for topic in several if _config(topic, "min.insync.replicas") == "1"]:
        yield Finding(
            f"{_named(lone)} at min.insync.replicas=1: an acknowledged record may be on one broker only; set it to 2"
        )
    if brittle := [t.name for t in several if int(_config(t, "min.insync.replicas") or 0) >= t.replication]:
        yield Finding(
            f"{_named(brittle)} at min.insync.replicas equal to the replication factor or above it: while one broker "
            "is away nothing is answered; set it to one less than the replication factor"
        )


def _named(topics: Sequence[str]) -> str:
    return f"topic {topics[0]} is" if len(topics) == 1 else f"topics {', '.join(topics)} are"


def _parallel(requests: Sequence[TopicFacts]) -> Iterator[Finding]:
    if requests and (partitions := max(topic.partitions for topic in requests)) == 1:
        yield Finding(
            f"{_named([topic.name for topic in requests])} of {partitions} partition: one replica gets all of it, and "
            "more replicas have nothing to do"
        )


def _bombs(requests: Sequence[TopicFacts]) -> Iterator[Finding]:
    for topic in requests:
        limit, codec = int(_config(topic, "max.message.bytes") or 0), _config(topic, "compression.type")
        if limit > _USUAL_BATCH and codec in _EXPLOSIVE:
            yield Finding(
                f"topic {topic.name} takes batches of {limit:,} bytes at compression.type={codec}, and one of them may "
                f"unpack to {limit * 1030 / 10**9:.1f} GB here; where publishers are not trusted, lower its "
                "max.message.bytes, or set its compression.type to lz4 or snappy"
            )


def _originals(kafka: KafkaSettings, requests: Sequence[TopicFacts], dead: TopicFacts | None) -> Iterator[Finding]:
    if kafka.dead_letter_topic is None:
        yield Finding(
            "WORKER_KAFKA__DEAD_LETTER_TOPIC is not set: rejected requests get their error answer, and their originals "
            "are kept nowhere else"
        )
    for topic in requests:
        limit = int(_config(topic, "max.message.bytes") or 0)
        if limit > kafka.max_request_bytes + _RECORD_OVERHEAD:
            yield Finding(
                f"topic {topic.name} takes records of {limit:,} bytes, WORKER_KAFKA__MAX_REQUEST_BYTES is "
                f"{kafka.max_request_bytes:,}: larger requests are rejected"
            )
    kept = int(_config(dead, "max.message.bytes") or 0) if dead else 0
    if dead and 0 < kept < kafka.max_request_bytes:
        yield Finding(
            f"topic {dead.name} takes records of {kept:,} bytes, fewer than WORKER_KAFKA__MAX_REQUEST_BYTES: originals "
            "of larger rejected requests are kept without their value; raise its max.message.bytes"
        )


def _connection(kafka: KafkaSettings) -> Iterator[Finding]:
    if kafka.insecure_tls:
        yield Finding("WORKER_KAFKA__INSECURE_TLS: anybody between us and the broker can read and change everything")
    if kafka.security_protocol == "SASL_PLAINTEXT":
        yield Finding("WORKER_KAFKA__SECURITY_PROTOCOL: SASL_PLAINTEXT logs in over a connection that is not encrypted")
    elif kafka.security_protocol == "PLAINTEXT" and kafka.allow_plaintext:
        yield Finding("WORKER_KAFKA__ALLOW_PLAINTEXT: requests and answers cross the network unencrypted")


def _untold(kafka: KafkaSettings, found: Survey, topics: Topics | None) -> Iterator[Finding]:
    """Rights that are no must: what we miss without them."""
    if found.controller is None or topics is None:
        return
    silent = {topic.name for topic in found.topics if topic.config is None} & topics.max_bytes.keys()
    for right in wished(kafka):
        if right.kind == "topic" and right.name in silent and kafka.max_message_bytes is None:
            yield Finding(
                f"topic {right.name}: the broker does not tell its size limit, {topics.max_bytes[right.name]:,} bytes "
                "are assumed; grant DESCRIBE_CONFIGS on it, or set WORKER_KAFKA__MAX_MESSAGE_BYTES",
                acl_command(kafka, right),
            )
        elif right.kind == "group" and topics.membership.takeover_seconds is None:
            yield Finding(
                f"group {right.name}: the broker does not tell how long a killed replica keeps its partitions; grant "
                "DESCRIBE_CONFIGS on it to know",
                acl_command(kafka, right),
            )


def _config(topic: TopicFacts, key: str) -> str:
    """Empty where the broker does not tell."""
    return (topic.config or {}).get(key, "")


def duration(milliseconds: int) -> str:
    """In the largest unit that divides it: `7 days`."""
    for unit, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        count, rest = divmod(milliseconds, size)
        if count and not rest:
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{milliseconds} ms"

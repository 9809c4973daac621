"""Losses of a group while none of its workers ran: offsets of some partitions, or states under offsets that go on.

Nothing else tells: a partition without an offset looks like a new one. Says what it finds, and refuses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from worker.core.failures import listed
from worker.core.records import Partition
from worker.kafka.client.command_clients import client_log, open_client
from worker.kafka.client.config import Config, admin_config
from worker.kafka.cluster.admin_answers import told_offset
from worker.kafka.cluster.topics import Topics
from worker.settings import Connection, KafkaSettings

TIMEOUT = 5.0  # seconds of each of two questions, on which no start depends
UNKNOWN = "whether the group has lost offsets, or states, is not known: the cluster does not tell its offsets now"
_AS_IT_IS: Config = {"isolation.level": "read_uncommitted"}  # an open transaction would be waited for otherwise
# The fate of records without an offset of the group, by AUTO_OFFSET_RESET.
_RESETS = {
    "earliest": "are read from the beginning, and what was answered before is answered again",
    "latest": "are passed over unanswered",
    "error": "are not read, and the worker that is given them ends",
}


class LogEnds(NamedTuple):
    """Where some partitions begin and end."""

    begins: Mapping[Partition, int]
    ends: Mapping[Partition, int]

    def records(self, partitions: Collection[Partition]) -> int:
        """Offsets between the two."""
        return sum(self.ends[at] - self.begins[at] for at in partitions)


def bounds(admin: AdminClient, partitions: Collection[Partition], timeout: float) -> LogEnds | None:
    """None where a leader does not tell."""
    specs = (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the client declares no types there
    asked = [
        admin.list_offsets({TopicPartition(*at): spec for at in partitions}, request_timeout=timeout) for spec in specs
    ]
    begins, ends = (
        {Partition(at.topic, at.partition): told_offset(future, timeout) for at, future in futures.items()}
        for futures in asked
    )
    known = LogEnds(*({at: offset for at, offset in of.items() if offset is not None} for of in (begins, ends)))
    return known if len(known.begins) == len(known.ends) == len(partitions) else None


def committed(
    kafka: Connection, group: str, partitions: Collection[Partition], timeout: float
) -> Mapping[Partition, int] | None:
    """The group's next offsets, where it has one; None where its coordinator does not tell.

    The admin client's `list_consumer_group_offsets` ends the process when the coordinator has moved (librdkafka 2.16).
    """
    promised = {"group.id": group, "enable.auto.commit": False}
    consumer = open_client(Consumer, kafka, _AS_IT_IS, promised, client_log())
    try:
        found = consumer.committed([TopicPartition(*at) for at in partitions], timeout)
    except KafkaException:
        return None
    finally:
        consumer.close()
    if any(at.error is not None for at in found):
        return None
    return {Partition(at.topic, at.partition): at.offset for at in found if at.offset >= 0}


def losses(kafka: KafkaSettings, topics: Topics) -> list[str]:
    """A sentence for each loss that the cluster shows. Members have said it when they began. Takes 70 ms."""
    if topics.has_members or not topics.can_administer:
        return []
    requests = [
        Partition(topic, number) for topic in kafka.request_topics for number in range(topics.partitions[topic])
    ]
    changelog = kafka.changelog_topic
    states = [Partition(changelog, number) for number in range(topics.partitions[changelog])] if changelog else []
    known = committed(kafka, kafka.group_id, requests, TIMEOUT)
    if known is not None and not known:  # it is new
        return []
    found = bounds(AdminClient(admin_config(kafka), logger=client_log()), [*requests, *states], TIMEOUT)
    if known is None or found is None:
        return [UNKNOWN]
    return [*_lost_offsets(kafka, requests, known, found), *_lost_states(states, requests, known, found)]


def _lost_offsets(
    kafka: KafkaSettings, requests: Collection[Partition], known: Mapping[Partition, int], found: LogEnds
) -> Iterator[str]:
    if lost := [at for at in requests if at not in known and found.ends[at] > found.begins[at]]:
        yield (
            f"group {kafka.group_id} has no offset for {len(lost)} of {len(requests)} partitions with requests "
            f"({listed(lost)}), and offsets for {len(known)}: by AUTO_OFFSET_RESET their {found.records(lost):,} "
            f"records {_RESETS[kafka.auto_offset_reset]}; to go on elsewhere stop all workers, and set the offsets "
            "with `kafka-consumer-groups.sh --reset-offsets`"
        )


def _lost_states(
    states: Collection[Partition], requests: Collection[Partition], known: Mapping[Partition, int], found: LogEnds
) -> Iterator[str]:
    passed = {at.number: known[at] for at in requests if known.get(at, 0) > 0}
    if empty := [at for at in states if at.number in passed and found.ends[at] == found.begins[at]]:
        yield (
            f"the changelog has no record in {len(empty)} of {len(states)} partitions ({listed(empty)}) where the "
            f"group has passed {sum(passed[at.number] for at in empty):,} requests: keys with states in there begin "
            "anew; if that is not meant, stop all workers and bring a backup back (`state import`)"
        )
    if cut := [at for at in states if at not in empty and found.begins[at] > 0]:
        yield (
            f"the changelog was cut in {len(cut)} of {len(states)} partitions ({listed(cut)}): it begins behind "
            f"{sum(found.begins[at] for at in cut):,} records that were deleted, and keys with states in them begin "
            "anew; only compaction may delete there"
        )

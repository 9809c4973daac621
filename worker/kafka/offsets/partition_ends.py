"""Where partitions end: what tells an offset of the group's that counts from one of records that are gone.

The questions block the loop, so each has a time limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from worker.core.records import Partition
from worker.kafka.client.errors import words_of
from worker.kafka.client.log import ClientLog
from worker.kafka.offsets.standing_lookup import waiting_words

# A broker answers a connection's requests in turn, and a fetch before ours may take `fetch.wait.max.ms`, 0.5 s.
END_TIMEOUT = 1.0


def partition_ends(consumer: Consumer, partitions: Sequence[Partition], log: ClientLog) -> Mapping[Partition, int]:
    """Where they end for us: each at its first open transaction, if there is one. Without those not known now.

    All at once: the client asks for the end of one alone behind the fetch under way, and 300 took the loop 80 s
    (measured 2026). But one that has no leader keeps it from asking about the others.
    """
    ends = _asked(consumer, partitions, log)
    if partitions and not ends and (led := _led(consumer, partitions)) != partitions:
        ends = _asked(consumer, led, log)
    return ends


def _asked(consumer: Consumer, partitions: Sequence[Partition], log: ClientLog) -> Mapping[Partition, int]:
    if not partitions:
        return {}
    try:
        found = consumer.offsets_for_times([TopicPartition(*p, OFFSET_END) for p in partitions], END_TIMEOUT)
        unknown = [at.error.str() for at in found if at.error is not None]
    except KafkaException as error:
        found, unknown = [], [words_of(error)] * len(partitions)
    if unknown:
        waiting = waiting_words(len(unknown))
        log.tell("end", f"the broker does not tell where partitions end, {waiting}: {unknown[0]}")
    return {Partition(at.topic, at.partition): at.offset for at in found if at.offset >= 0}


def _led(consumer: Consumer, partitions: Sequence[Partition]) -> Sequence[Partition]:
    """Those of them that have a leader; none while that is not known."""
    try:
        topics = consumer.list_topics(timeout=END_TIMEOUT).topics
    except KafkaException:  # the question before this one failed, too, and was logged
        return []
    leaders = {Partition(name, at.id): at.leader for name, topic in topics.items() for at in topic.partitions.values()}
    return [partition for partition in partitions if leaders.get(partition, -1) >= 0]

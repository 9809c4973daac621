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


class PartitionEnds:
    """Asks the consumer's brokers, and remembers nothing."""

    def __init__(self, consumer: Consumer, log: ClientLog) -> None:
        self._consumer = consumer
        self._log = log

    def of(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Where they end for us: each at its first open transaction, if there is one. Without those not known now.

        All at once: the client asks for the end of one alone behind the fetch under way, and 300 took the loop 80 s
        (measured 2026). But one that has no leader keeps it from asking about the others.
        """
        ends = self._ask(partitions)
        if partitions and not ends and (led := self._led(partitions)) != partitions:
            ends = self._ask(led)
        return ends

    def _ask(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        if not partitions:
            return {}
        try:
            found = self._consumer.offsets_for_times([TopicPartition(*p, OFFSET_END) for p in partitions], END_TIMEOUT)
        except KafkaException as error:
            self._tell_unknown(len(partitions), words_of(error))
            return {}
        if unknown := [at.error for at in found if at.error is not None]:
            self._tell_unknown(len(unknown), unknown[0].str())
        return {Partition(at.topic, at.partition): at.offset for at in found if at.offset >= 0}

    def _led(self, partitions: Sequence[Partition]) -> Sequence[Partition]:
        """Those of them that have a leader; none while that is not known."""
        try:
            topics = self._consumer.list_topics(timeout=END_TIMEOUT).topics
        except KafkaException:  # the question before this one failed, too, and was logged
            return []
        leaders = {
            Partition(name, at.id): at.leader for name, topic in topics.items() for at in topic.partitions.values()
        }
        return [partition for partition in partitions if leaders.get(partition, -1) >= 0]

    def _tell_unknown(self, count: int, why: str) -> None:
        self._log.tell("end", f"the broker does not tell where partitions end, {waiting_words(count)}: {why}")

"""Asks the brokers, in the loop's thread, for the group's offsets of partitions and for the partitions' ends.

While the transaction of a dead replica is open, the group tells nothing of the partitions that the replica was about to
commit, until the broker ends it (`DELIVERY__TRANSACTION_TIMEOUT_MS`). A question is answered for all its partitions or
for none. So a question gets little time, and the question after an unanswered one is about one partition alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from worker.core.records import Partition
from worker.kafka.client.errors import ClientLog, words_of

# Seconds for which the loop stands still. An answer takes 1.5 ms next to the broker, elsewhere a packet's round trip.
ANSWER_TIMEOUT = 0.5
# Seconds, at an assignment, from an unanswered question to the next.
ASK_AGAIN_AFTER = 0.1
# Seconds for the ends of partitions. A broker answers a connection's requests in turn, and a fetch before ours may take
# `fetch.wait.max.ms`, 0.5 s.
END_TIMEOUT = 1.0

# The note of an offset where the group has committed no answer yet.
NEW = "new"


class GroupStanding(NamedTuple):
    """The group's offset of a partition, None while it has none. `is_new`: it has committed no answer there."""

    offset: int | None
    is_new: bool


class AssignmentStandings(NamedTuple):
    """The partitions of an assignment: `known` if the group answered for them, `unknown` if it did not."""

    known: Sequence[TopicPartition] = ()
    unknown: Sequence[TopicPartition] = ()


class StandingLookup:
    """Asks for the group's offsets and the partitions' ends. Used by the loop's thread."""

    def __init__(self, consumer: Consumer, log: ClientLog) -> None:
        self._consumer = consumer
        self._log = log
        self._is_in_vain = False  # the last question was not answered

    def now(self, positions: Sequence[TopicPartition], patience: float) -> AssignmentStandings:
        """Ask the group for `patience` seconds: meanwhile the client finds a coordinator that has moved."""
        give_up_at = time.monotonic() + patience
        while True:
            known, unknown = list[TopicPartition](), positions
            with suppress(KafkaException):
                found = self._consumer.committed(list(positions), max(ASK_AGAIN_AFTER, give_up_at - time.monotonic()))
                known = [at for at in found if at.error is None]
                unknown = [at for at in found if at.error is not None]
            if not unknown or time.monotonic() + ASK_AGAIN_AFTER >= give_up_at:
                return AssignmentStandings(known, unknown)
            time.sleep(ASK_AGAIN_AFTER)

    def ask(self, partitions: Sequence[Partition]) -> Mapping[Partition, GroupStanding]:
        """Where the group stands in these partitions, as far as it tells."""
        asked = random.sample(partitions, 1) if self._is_in_vain else partitions
        found = self.now([TopicPartition(*partition) for partition in asked], ANSWER_TIMEOUT).known
        self._is_in_vain = not found
        if not found:
            self._log.tell("committed", f"the group does not tell its offsets, partitions wait: {len(partitions)}")
        return {Partition(at.topic, at.partition): standing_of(at) for at in found}

    def ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Each partition's end, or its first open transaction. Partitions whose end is not known now are left out.

        One question covers all, because it waits for the fetch under way. A partition without a leader is left out: it
        would hold up the others.
        """
        if not partitions:
            return {}
        found, why = list[TopicPartition](), ""
        try:
            topics = [
                self._consumer.list_topics(at, timeout=END_TIMEOUT).topics[at] for at in {p.topic for p in partitions}
            ]
            leaders = {(topic.topic, at.id): at.leader for topic in topics for at in topic.partitions.values()}
            led = [TopicPartition(*p, OFFSET_END) for p in partitions if leaders.get(p, -1) >= 0]
            found = self._consumer.offsets_for_times(led, END_TIMEOUT) if led else []
        except KafkaException as error:
            why = f": {words_of(error)}"
        ends = {Partition(at.topic, at.partition): at.offset for at in found if at.offset >= 0}
        if waiting := len(partitions) - len(ends):
            self._log.tell("end", f"the broker does not tell where partitions end, partitions wait: {waiting}{why}")
        return ends


def standing_of(at: TopicPartition) -> GroupStanding:
    """Read the group's answer for one partition."""
    return GroupStanding(None, is_new=True) if at.offset < 0 else GroupStanding(at.offset, at.metadata == NEW)

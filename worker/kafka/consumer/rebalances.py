"""The client's callbacks, inside `poll` and `close`, for partitions that the group gives us or takes away.

No callback raises: a failure is kept, and the poll around the callback raises it. A partition that goes is forgotten
only after the worker was told: until then the delivery may ask what is under way for it.

A new partition begins at the group's offset, and the callback asks for it: by itself the client takes 100 ms longer,
and may never learn it from a coordinator that has moved (librdkafka 2.16). If the group does not answer for a while,
the client begins at the beginning under `earliest`, and is moved after the first record (`gates.py`). Under `latest`
and `error` no record may ever come, so the partitions are left to the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from worker.core.records import Partition
from worker.kafka.client.errors import ClientLog, words_of
from worker.kafka.consumer.flow import Flowing
from worker.kafka.consumer.gates import Gates
from worker.kafka.offsets.standings import GroupStanding, StandingLookup, standing_of
from worker.ports import Assignments
from worker.settings import KafkaSettings

# Seconds for which the loop stands still. An answer took 2 ms (median) next to a busy broker, and 0.2 s over a slow
# network. While the transaction of a dead replica is open the group does not answer.
PATIENCE: Mapping[str, float] = {"earliest": 0.5, "latest": 2.0, "error": 2.0}

# `error` is missing: then the client asks for the offset itself, and reports the error.
_RESETS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}


class Rebalances:
    """The callbacks of one consumer in its group. Owned by the source."""

    def __init__(
        self,
        kafka: KafkaSettings,
        flowing: Flowing,
        standings: StandingLookup,
        gates: Gates,
        fail: Callable[[Exception], None],
        log: ClientLog,
    ) -> None:
        self._kafka = kafka
        self._flowing = flowing
        self._standings = standings
        self._gates = gates
        self._fail = fail
        self._log = log
        self._is_in = False  # in the group, as far as the worker was told
        self._sightings = 0  # reports in a row with a coordinator that is up
        self.assignments: Assignments | None = None  # set when the group is joined
        self.taken_away: set[Partition] = set()  # by the callbacks of the poll under way
        self.is_new = False  # the client has new partitions, and was not told their pauses again
        self.was_assigned = False
        self.is_over = False  # the worker hangs, and is told nothing any more

    def subscribe(self, consumer: Consumer, assignments: Assignments) -> None:
        self.assignments = assignments
        consumer.subscribe(
            list(self._kafka.request_topics),
            on_assign=self._on_assign,
            on_revoke=lambda _, positions: self._leave("revoked", positions),
            on_lost=self._on_lost,
        )

    def rejoin(self, consumer: Consumer) -> None:
        """Leave the group and join it again. All partitions are revoked in the next poll."""
        assert self.assignments is not None
        consumer.unsubscribe()
        self.subscribe(consumer, self.assignments)

    def coordinator_seen(self, state: str) -> None:
        """Tell the worker that we are in the group without a partition: under KIP-848 no callback does.

        A member that sees its coordinator up twice in a row has joined, or an error has said why not.
        """
        self._sightings = self._sightings + 1 if state == "up" else 0
        if self.assignments is not None and self._sightings >= 2 and not self._is_in:
            self._is_in = True
            self._tell("assigned", [])

    def _on_assign(self, consumer: Consumer, positions: list[TopicPartition]) -> None:
        if self.is_over:
            return
        self.is_new = self.was_assigned = True
        self._is_in = True
        partitions = self._named(positions)
        self._gates.assigned(partitions)
        self._tell("assigned", partitions)
        told = self._begin_at_once(consumer, positions)
        assert self.assignments is not None
        for partition in partitions:
            is_in_doubt = self.assignments.is_in_doubt(partition)
            self._gates.begin(partition, told.get(partition), is_in_doubt=is_in_doubt)

    def _begin_at_once(
        self, consumer: Consumer, assigned: Sequence[TopicPartition]
    ) -> Mapping[Partition, GroupStanding]:
        """Assign these to the client at the group's offsets, or where the reset policy says. Returns what was told.

        Under `earliest` a partition without a known offset is assigned at its beginning, and moved before a record of
        it is used. An operator's own strategy may not be incremental: then the client assigns by itself.
        """
        if not assigned or "partition.assignment.strategy" in self._kafka.config:
            return {}
        policy = self._kafka.auto_offset_reset
        begins_meanwhile = policy == "earliest"
        try:
            known, unknown = self._standings.now(assigned, PATIENCE[policy])
            told = dict(zip(self._named(known), map(standing_of, known), strict=True))
            for at in known:
                if at.offset < 0:
                    at.offset = _RESETS.get(policy, OFFSET_INVALID)
            for at in unknown:
                at.offset = OFFSET_BEGINNING if begins_meanwhile else OFFSET_INVALID
            consumer.incremental_assign([*known, *unknown])
        except (KafkaException, RuntimeError) as error:  # the client is leaving, or broken: the next poll says so
            self._log.tell("assign", f"the client does not take {len(assigned)} partitions: {words_of(error)}")
            return {}
        if unknown and not begins_meanwhile:
            some = f"{len(unknown)} of {len(assigned)} partitions"
            self._log.tell("committed", f"the group does not tell its offsets: {some} are left to the client")
        return told

    def _on_lost(self, _: Consumer, positions: list[TopicPartition]) -> None:
        self._is_in, self._sightings = False, 0
        self._leave("lost", positions)

    def _leave(self, how: str, positions: list[TopicPartition]) -> None:
        if self.is_over:
            return
        partitions = self._named(positions)
        self.taken_away.update(partitions)
        self._tell(how, partitions)
        self._gates.forget(partitions)

    def _tell(self, what: str, partitions: Sequence[Partition]) -> None:
        try:
            getattr(self.assignments, what)(partitions)
        except Exception as error:  # noqa: BLE001  # kept, and raised by the poll that runs this
            self._fail(error)

    def _named(self, positions: Sequence[TopicPartition]) -> list[Partition]:
        return [self._flowing.named(at.topic, at.partition) for at in positions]

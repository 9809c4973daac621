"""Partitions come and go: what the client calls, inside `poll` and `close`, when the group gives us some or takes them.

None of these callbacks raises: what fails is kept, and the poll that it ran in raises it. A partition that comes begins
where the group stands. One that goes is forgotten once the worker has had its say: until then the delivery may ask what
is under way for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, TopicPartition

from worker.core.records import Partition
from worker.kafka.client.log import ClientLog
from worker.kafka.consumer.gates import Gates
from worker.kafka.consumer.to_records import Flowing
from worker.kafka.offsets.standing_lookup import StandingLookup, in_background
from worker.kafka.offsets.starting_offsets import begin_at_once
from worker.ports import Assignments
from worker.settings import KafkaSettings


class Rebalances:
    """Of one consumer in its group. Owned by the source."""

    def __init__(
        self,
        kafka: KafkaSettings,
        flowing: Flowing,
        standings: StandingLookup,
        gates: Gates,
        fail: Callable[[Exception], None],
        log: ClientLog,
        joined: Callable[[], object],
    ) -> None:
        """`joined` is called once in the group, on a thread of its own."""
        self._kafka = kafka
        self._flowing = flowing
        self._standings = standings
        self._gates = gates
        self._fail = fail
        self._log = log
        self._joined: Callable[[], object] | None = joined
        self._stand_by = StandBy()
        self.assignments: Assignments | None = None  # once the group is joined
        self.taken_away: set[Partition] = set()  # by the callbacks of the poll under way
        self.is_new = False  # the client has partitions of which the pauses were not said again
        self.was_assigned = False
        self.is_over = False  # the worker hangs, and hears of nothing any more

    def subscribe(self, consumer: Consumer, assignments: Assignments) -> None:
        self.assignments = assignments
        consumer.subscribe(
            list(self._kafka.request_topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def rejoin(self, consumer: Consumer) -> None:
        """Leave the group and join it again. All partitions are revoked in the next poll."""
        assert self.assignments is not None
        consumer.unsubscribe()
        self.subscribe(consumer, self.assignments)

    def coordinator_seen(self, state: str) -> None:
        """Under KIP-848 no callback says that we are in the group without a partition: this does."""
        if self.assignments is not None and self._stand_by.heard(state):
            self._tell("assigned", [])
            self._tell_joined()

    def _on_assign(self, consumer: Consumer, positions: list[TopicPartition]) -> None:
        if self.is_over:
            return
        self.is_new = self.was_assigned = True
        self._stand_by.is_known()
        partitions = self._named(positions)
        self._gates.assigned(partitions)
        self._tell("assigned", partitions)
        told = begin_at_once(consumer, positions, self._standings, self._kafka, self._log)
        for at, partition in zip(told.known, self._named(told.known), strict=True):
            self._gates.begin(partition, at.offset)
        self._gates.adrift(self._named(told.unknown))
        self._tell_joined()

    def _on_revoke(self, _: Consumer, positions: list[TopicPartition]) -> None:
        self._leave("revoked", positions)

    def _on_lost(self, _: Consumer, positions: list[TopicPartition]) -> None:
        self._stand_by.lost()
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

    def _tell_joined(self) -> None:
        if (joined := self._joined) is not None:
            self._joined = None
            in_background(joined, "joined")

    def _named(self, positions: Sequence[TopicPartition]) -> list[Partition]:
        return [self._flowing.named(at.topic, at.partition) for at in positions]


class StandBy:
    """Notices that we are in the group though it has no partition for us: under KIP-848 no callback says so.

    The client's statistics do: a member whose coordinator is up has joined within a few hundred milliseconds, or an
    error has said why not. Not so a classic member: its coordinator is up long before all others have joined anew, and
    then a callback says so.
    """

    def __init__(self) -> None:
        self._is_known = False
        self._sightings = 0

    def is_known(self) -> None:
        self._is_known = True

    def lost(self) -> None:
        """We are out, and the client joins again."""
        self._is_known = False
        self._sightings = 0

    def heard(self, coordinator: str) -> bool:
        """Whether to tell now that we are in: the second time in a row that the coordinator is up, and then no more."""
        if self._is_known:
            return False
        self._sightings = self._sightings + 1 if coordinator == "up" else 0
        self._is_known = self._sightings >= 2
        return self._is_known

"""The ledger against a model of what Kafka may be told, through any order of events."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from tests.builders import P0, P1, Q0, rejection
from worker.core.ledger import OffsetLedger, Place
from worker.core.records import Partition

partitions = st.sampled_from([P0, P1, Q0])


class LedgerMachine(RuleBasedStateMachine):
    """Records are taken, answered and acknowledged in any order; partitions come and go; commits fare as they will."""

    taken = Bundle("taken")
    sent = Bundle("sent")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = OffsetLedger()
        self.received: dict[Partition, list[Place]] = {}
        self.left: dict[Partition, list[Place]] = {}
        self.settled: set[Place] = set()
        self.told: dict[Partition, int] = {}
        self.next_offset: dict[Partition, int] = {}

    @rule(target=taken, partition=partitions, gap=st.integers(0, 5), rows=st.integers(0, 9), size=st.integers(0, 99))
    def take(self, partition: Partition, gap: int, rows: int, size: int) -> Place:
        offset = self.next_offset.get(partition, 0) + gap
        self.next_offset[partition] = offset + 1
        place = self.ledger.track(partition, offset, rows, size, 0.0)
        self.received.setdefault(partition, []).append(place)
        return place

    @rule(target=sent, place=consumes(taken), messages=st.integers(1, 2))
    def answer(self, place: Place, messages: int) -> object:
        leaving = self.ledger.answer([(place, rejection(place.offset))])
        for gone in leaving:
            gone.undelivered = messages
            self.left.setdefault(gone.line.partition, []).append(gone)
        return multiple(*(gone for gone in leaving for _ in range(messages)))

    @rule(place=consumes(sent))
    def acknowledge(self, place: Place) -> None:
        self.ledger.settle([place])
        if not place.undelivered:
            self.settled.add(place)

    @rule(partition=partitions, share=st.floats(0, 1))
    def hear_of_a_commit(self, partition: Partition, share: float) -> None:
        """Of the newest commit or of an older one, as results come."""
        for each, offset in self.ledger.committable([partition]).items():
            self.told[each] = max(self.told.get(each, -1), round(offset * share))
            self.ledger.committed({each: round(offset * share)})

    @rule(partition=partitions)
    def forget(self, partition: Partition) -> None:
        held = self.received.pop(partition, [])
        self.left.pop(partition, None)
        self.told.pop(partition, None)

        assert self.ledger.forget([partition]) == len(held) - self._settled_first(held)

    @invariant()
    def answers_leave_in_the_order_received(self) -> None:
        for partition, left in self.left.items():
            assert left == self.received[partition][: len(left)]

    @invariant()
    def a_commit_reaches_the_first_unsettled_record_and_no_further(self) -> None:
        reached = {
            partition: line[self._settled_first(line) - 1].offset + 1
            for partition, line in self.received.items()
            if self._settled_first(line)
        }

        assert self.ledger.committable() == {
            partition: offset for partition, offset in reached.items() if offset > self.told.get(partition, -1)
        }

    @invariant()
    def the_counters_count_what_is_unsettled(self) -> None:
        owed = [place for line in self.received.values() for place in line[self._settled_first(line) :]]

        assert self.ledger.records == len(owed)
        assert self.ledger.rows == sum(place.rows for place in owed)
        assert self.ledger.size == sum(place.size for place in owed)

    def _settled_first(self, line: list[Place]) -> int:
        return next((at for at, place in enumerate(line) if place not in self.settled), len(line))


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=100, stateful_step_count=40)

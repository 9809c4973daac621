"""The ledgers against a model of what may leave and what Kafka may be told, through any order of events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from tests.builders import P0, P1, Q0, record, rejection, request
from worker.core.ledger import Place
from worker.core.loose import LEDGERS, Order
from worker.core.records import Partition

partitions = st.sampled_from([P0, P1, Q0])
keys = st.sampled_from([None, b"a", b"b"])


class LedgerMachine(RuleBasedStateMachine):
    """Records are taken, answered and acknowledged in any order; partitions come and go; commits fare as they will."""

    taken = Bundle("taken")
    sent = Bundle("sent")

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.order = order
        self.ledger = LEDGERS[order]()
        self.received: dict[Partition, list[Place]] = {}
        self.held: dict[Place, tuple[bytes | None, int, int]] = {}  # key, rows and bytes, as they were taken
        self.answered: set[Place] = set()
        self.left: set[Place] = set()
        self.settled: set[Place] = set()
        self.told: dict[Partition, int] = {}
        self.next_offset: dict[Partition, int] = {}

    @rule(
        target=taken,
        partition=partitions,
        gap=st.integers(0, 5),
        rows=st.integers(0, 9),
        size=st.integers(0, 99),
        key=keys,
    )
    def take(self, partition: Partition, gap: int, rows: int, size: int, key: bytes | None) -> Place:
        offset = self.next_offset.get(partition, 0) + gap
        self.next_offset[partition] = offset + 1
        place = self.ledger.track(record(offset, partition=partition, key=key), rows, size, float(offset))
        self.received.setdefault(partition, []).append(place)
        self.held[place] = key, rows, size
        return place

    @rule(target=taken, partition=partitions, records=st.integers(2, 4), is_taken_apart=st.booleans())
    def take_a_run(self, partition: Partition, records: int, *, is_taken_apart: bool) -> object:
        """Records that travel as one; it may be that each gets a place of its own after all."""
        if self.order == "key":
            return multiple()
        first = self.next_offset.get(partition, 0)
        self.next_offset[partition] = first + records
        last = record(first + records - 1, partition=partition)
        places = [self.ledger.track(last, records, 4 * records, float(first), records)]
        if is_taken_apart:
            singles = [request(first + at, partition=partition) for at in range(records)]
            places = self.ledger.unravel(places[0], singles)
        self.received.setdefault(partition, []).extend(places)
        self.held.update({place: (None, place.records, 4 * place.records) for place in places})
        return multiple(*places)

    @rule(target=sent, some=st.lists(consumes(taken), min_size=1, max_size=4))
    def answer(self, some: list[Place]) -> object:
        """Several at once, as a batch brings them home."""
        leaving = self.ledger.answer([(place, rejection(place.offset)) for place in some])
        self.answered.update(some)

        assert len(leaving) == len(set(leaving))
        assert set(leaving) == {place for place in self._received() if self._may_leave(place)} - self.left
        for gone in leaving:
            assert self.left.issuperset(self._awaited(gone)), "ahead of one that it waits for"
            self.left.add(gone)
        return multiple(*leaving)

    @rule(place=consumes(sent))
    def acknowledge(self, place: Place) -> None:
        self.ledger.settle([place])

        self.settled.add(place)

    @rule(partition=partitions, share=st.floats(0, 1))
    def hear_of_a_commit(self, partition: Partition, share: float) -> None:
        """Of the newest commit or of an older one, as results come."""
        for each, offset in self.ledger.committable([partition]).items():
            self.told[each] = max(self.told.get(each, -1), round(offset * share))
            self.ledger.committed({each: round(offset * share)})

    @rule(partition=partitions)
    def forget(self, partition: Partition) -> None:
        owed = self._owed(self.received.pop(partition, []))
        self.told.pop(partition, None)
        repeated = owed if self.order == "partition" else [place for place in owed if place not in self.settled]

        assert self.ledger.forget([partition]) == sum(place.records for place in repeated)
        assert not any(self.ledger.knows(place) for place in owed)

    @invariant()
    def a_commit_reaches_the_first_unsettled_record_and_no_further(self) -> None:
        reached = {
            partition: line[-len(owed) - 1].offset + 1
            for partition, line in self.received.items()
            if len(owed := self._owed(line)) < len(line)
        }

        assert self.ledger.committable() == {
            partition: offset for partition, offset in reached.items() if offset > self.told.get(partition, -1)
        }

    @invariant()
    def the_counters_count_what_no_commit_may_pass(self) -> None:
        """In a loose order what is settled there is a record still, and no more."""
        owed = [place for line in self.received.values() for place in self._owed(line)]
        heavy = owed if self.order == "partition" else [place for place in owed if place not in self.settled]

        assert self.ledger.records == sum(place.records for place in owed)
        assert self.ledger.rows == sum(self.held[place][1] for place in heavy)
        assert self.ledger.size == sum(self.held[place][2] for place in heavy)

    @invariant()
    def each_place_is_what_the_ledger_says(self) -> None:
        for line in self.received.values():
            owed = self._owed(line)
            for place in line:
                is_passed = place not in owed
                is_settled = is_passed or (place in self.settled and self.order != "partition")
                assert self.ledger.is_settled(place) == is_settled
                assert self.ledger.is_next(place) == (owed[:1] == [place])
                assert self.ledger.is_done(place) == (self.told.get(place.line.partition, -1) > place.offset)

    @invariant()
    def each_partition_is_what_the_ledger_says(self) -> None:
        under_way = {place.line.partition for place in self._received() if place in self.left - self.settled}
        oldest = {p: owed[0].taken_at for p, line in self.received.items() if (owed := self._owed(line))}

        assert {p for p in (P0, P1, Q0) if self.ledger.awaits_delivery([p])} == under_way
        assert self.ledger.awaits_delivery() == bool(under_way)
        assert self.ledger.oldest_by_partition() == oldest

    # The model

    def _received(self) -> Iterator[Place]:
        return (place for line in self.received.values() for place in line)

    def _owed(self, line: list[Place]) -> list[Place]:
        """From the first that is not settled on."""
        first = next((at for at, place in enumerate(line) if place not in self.settled), len(line))
        return line[first:]

    def _awaited(self, place: Place) -> set[Place]:
        """Those whose answers go before this one's."""
        line = self.received[place.line.partition]
        earlier = line[: line.index(place)]
        key = self.held[place][0]
        if self.order == "partition":
            return set(earlier)
        return {one for one in earlier if self.order == "key" and key is not None and self.held[one][0] == key}

    def _may_leave(self, place: Place) -> bool:
        return self.answered.issuperset({place, *self._awaited(place)})


@pytest.mark.parametrize("order", LEDGERS)
def test_every_order_equals_its_model(order: Order) -> None:
    """What leaves and when, how far a commit reaches, what is counted."""
    run_state_machine_as_test(
        lambda: LedgerMachine(order),  # type: ignore[arg-type]  # whatever makes one will do
        settings=settings(max_examples=100, stateful_step_count=40),
    )

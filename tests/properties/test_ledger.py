"""The ledgers equal a model of answers that may leave and offsets that may be committed, in any order of events."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.builders import P0, P1, Q0, record, rejection, request
from tests.meeting import meeting, met, with_each_seed
from worker.core.ordering.order_by_key import LEDGERS, Order
from worker.core.records import Partition, Place

PARTITIONS = (P0, P0, P0, P1, Q0)  # mostly one, so that records wait for each other
KEYS = (b"a", b"a", b"b", None)
STEPS = 40


class Walk:
    """Takes, answers and acknowledges records in any order; partitions come and go; commits succeed or fail.

    Dice alone choose each step: Hypothesis's rule-based machine leaves some rules out of most examples, and in a
    hundred examples no commit's result came.
    """

    def __init__(self, order: Order, dice: random.Random) -> None:
        self.order = order
        self.dice = dice
        self.ledger = LEDGERS[order]()
        self.taken: list[Place] = []  # and not answered
        self.sent: list[Place] = []  # and not acknowledged
        self.received: dict[Partition, list[Place]] = {}
        self.held: dict[Place, tuple[bytes | None, int, int]] = {}  # key, rows and bytes, as they were taken
        self.taken_at: dict[Place, float] = {}
        self.answered: set[Place] = set()
        self.left: set[Place] = set()
        self.settled: set[Place] = set()
        self.told: dict[Partition, int] = {}
        self.next_offset: dict[Partition, int] = {}

    def go(self, steps: int) -> None:
        """Take `steps` steps, and check after each."""
        usual: list[Callable[[], None]] = [self.take, self.answer, self.acknowledge, self.hear_of_a_commit]
        for _ in range(steps):
            self.dice.choice([*usual, *usual, *usual, self.hear_of_a_commit, self.take_a_run, self.forget])()
            self.a_commit_reaches_the_first_unsettled_record_and_no_further()
            self.the_counters_count_what_no_commit_may_pass()
            self.each_place_is_what_the_ledger_says()
            self.each_partition_is_what_the_ledger_says()

    def drawn(self, places: list[Place]) -> list[Place]:
        """Remove up to four of these places, and return them."""
        some = self.dice.sample(places, self.dice.randint(0, min(4, len(places))))
        places[:] = [place for place in places if place not in some]
        return some

    def take(self) -> None:
        partition = self.dice.choice(PARTITIONS)
        for _ in range(self.dice.randint(1, 4)):
            offset = self.next_offset.get(partition, 0) + self.dice.randint(0, 5)
            key, rows, size = self.dice.choice(KEYS), self.dice.randint(0, 9), self.dice.randint(0, 99)
            self.next_offset[partition] = offset + 1
            place = self.ledger.track(record(offset, partition=partition, key=key), rows, size, float(offset))
            self.receive(partition, [place], [(key, rows, size)], float(offset))

    def take_a_run(self) -> None:
        """Take records that travel as one; in the end each may still get a place of its own."""
        if self.order == "key":
            return
        partition, records = self.dice.choice(PARTITIONS), self.dice.randint(2, 4)
        first = self.next_offset.get(partition, 0)
        self.next_offset[partition] = first + records
        last = record(first + records - 1, partition=partition)
        places = [self.ledger.track(last, records, 4 * records, float(first), records)]
        is_taken_apart = self.dice.random() < 0.5
        if is_taken_apart:
            singles = [request(first + at, partition=partition) for at in range(records)]
            places = self.ledger.unravel(places[0], singles)
        met("a run is taken apart between others", is_so=is_taken_apart and bool(self.received.get(partition)))
        self.receive(partition, places, [(None, place.records, 4 * place.records) for place in places], float(first))

    def receive(
        self, partition: Partition, places: Sequence[Place], held: Sequence[tuple[bytes | None, int, int]], now: float
    ) -> None:
        self.taken += places
        self.received.setdefault(partition, []).extend(places)
        self.held.update(zip(places, held, strict=True))
        self.taken_at.update(dict.fromkeys(places, now))

    def answer(self) -> None:
        """Answer several at once, as a batch does."""
        some = self.drawn(self.taken)
        met("it is answered for a partition that was forgotten", is_so=not all(map(self.ledger.knows, some)))
        leaving = self.ledger.answer([(place, rejection(place.offset)) for place in some])
        self.answered.update(some)

        known = [place for place in some if self.ledger.knows(place)]
        met("an answer waits for an earlier one", is_so=any(place not in leaving for place in known))
        met("earlier answers leave with it", is_so=len(leaving) > len(some))
        assert len(leaving) == len(set(leaving))
        assert set(leaving) == {place for place in self._received() if self._may_leave(place)} - self.left
        for gone in leaving:
            assert self.left.issuperset(self._awaited(gone)), "ahead of one that it waits for"
            self.left.add(gone)
        self.sent += leaving

    def acknowledge(self) -> None:
        some = self.drawn(self.sent)
        is_known = [self.ledger.knows(place) for place in some]
        met("it is settled after its partition was forgotten", is_so=not all(is_known))
        met(
            "it is settled before an earlier one", is_so=bool(some) and is_known[0] and not self.ledger.is_next(some[0])
        )

        self.ledger.settle(some)

        self.settled.update(some)

    def hear_of_a_commit(self) -> None:
        """The result of the newest commit, or of an older one, comes."""
        partition, share = self.dice.choice(PARTITIONS), self.dice.choice([0.0, 0.0, 0.9, 1.0])
        for each, offset in self.ledger.committable([partition]).items():
            heard = round(offset * share)
            met("a commit is heard of")
            met("a commit is heard of that went further before", is_so=self.told.get(each, -1) > heard)
            self.told[each] = max(self.told.get(each, -1), heard)
            self.ledger.committed({each: heard})

    def forget(self) -> None:
        partition = self.dice.choice(PARTITIONS)
        owed = self._owed(self.received.pop(partition, []))
        self.told.pop(partition, None)
        repeated = owed if self.order == "partition" else [place for place in owed if place not in self.settled]

        met("a partition leaves with what is sent", is_so=any(place in self.left for place in owed))
        met("a partition leaves with what is held", is_so=any(place not in self.left for place in owed))
        met("a partition leaves with what is settled behind another", is_so=not self.settled.isdisjoint(owed))
        assert self.ledger.forget([partition]) == sum(place.records for place in repeated)
        assert not any(self.ledger.knows(place) for place in owed)

    # After each step

    def a_commit_reaches_the_first_unsettled_record_and_no_further(self) -> None:
        reached = {
            partition: line[-len(owed) - 1].offset + 1
            for partition, line in self.received.items()
            if len(owed := self._owed(line)) < len(line)
        }

        assert self.ledger.committable() == {
            partition: offset for partition, offset in reached.items() if offset > self.told.get(partition, -1)
        }

    def the_counters_count_what_no_commit_may_pass(self) -> None:
        """In a loose order a settled record behind an open one counts as a record, but not its rows and bytes."""
        owed = [place for line in self.received.values() for place in self._owed(line)]
        heavy = owed if self.order == "partition" else [place for place in owed if place not in self.settled]

        assert self.ledger.records == sum(place.records for place in owed)
        assert self.ledger.rows == sum(self.held[place][1] for place in heavy)
        assert self.ledger.size == sum(self.held[place][2] for place in heavy)

    def each_place_is_what_the_ledger_says(self) -> None:
        for line in self.received.values():
            owed = self._owed(line)
            for place in line:
                is_passed = place not in owed
                is_settled = is_passed or (place in self.settled and self.order != "partition")
                assert self.ledger.is_settled(place) == is_settled
                assert self.ledger.is_next(place) == (owed[:1] == [place])
                assert self.ledger.is_done(place) == (self.told.get(place.line.partition, -1) > place.offset)

    def each_partition_is_what_the_ledger_says(self) -> None:
        under_way = {place.line.partition for place in self._received() if place in self.left - self.settled}
        oldest = {p: self.taken_at[owed[0]] for p, line in self.received.items() if (owed := self._owed(line))}

        assert {p for p in (P0, P1, Q0) if self.ledger.awaits_delivery([p])} == under_way
        assert self.ledger.awaits_delivery() == bool(under_way)
        assert self.ledger.oldest_by_partition() == oldest

    # The model

    def _received(self) -> Iterator[Place]:
        return (place for line in self.received.values() for place in line)

    def _owed(self, line: list[Place]) -> list[Place]:
        """The places from the first unsettled one on."""
        first = next((at for at, place in enumerate(line) if place not in self.settled), len(line))
        return line[first:]

    def _awaited(self, place: Place) -> set[Place]:
        """The places whose answers go before this one's."""
        line = self.received[place.line.partition]
        earlier = line[: line.index(place)]
        key = self.held[place][0]
        if self.order == "partition":
            return set(earlier)
        return {one for one in earlier if self.order == "key" and key is not None and self.held[one][0] == key}

    def _may_leave(self, place: Place) -> bool:
        return self.answered.issuperset({place, *self._awaited(place)})


IN_ANY_ORDER = (
    "it is answered for a partition that was forgotten",
    "a commit is heard of",
    "a commit is heard of that went further before",
    "a partition leaves with what is sent",
    "a partition leaves with what is held",
    "a partition leaves with what is settled behind another",
    "it is settled after its partition was forgotten",
    "it is settled before an earlier one",
)
BESIDES = {
    "partition": ("an answer waits for an earlier one", "earlier answers leave with it"),
    "key": ("an answer waits for an earlier one", "earlier answers leave with it"),
    "none": (),
}
RUNS = ("a run is taken apart between others",)


@pytest.mark.parametrize("order", LEDGERS)
def test_every_order_equals_its_model(order: Order) -> None:
    """They agree on the answers that leave, the reach of a commit, and the counters."""

    with meeting(*IN_ANY_ORDER, *BESIDES[order], *(RUNS if order != "key" else ())):
        with_each_seed(100, lambda dice: Walk(order, dice).go(STEPS))

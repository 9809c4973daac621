"""The ledgers equal a model of answers that may leave and offsets that may be committed, in any order of events."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import pytest

from tests.chunks import P0, P1, Q0, places_of, record, rejection
from tests.meeting import meeting, met, with_each_seed
from worker.core.ordering.ledger import Answered, Place, Stretch
from worker.core.ordering.order_by_key import LEDGERS, Order
from worker.core.records import Answer, Partition, Rejection, nothing_owed

PARTITIONS = (P0, P0, P0, P1, Q0)  # mostly one, so that records wait for each other
KEYS = (b"a", b"a", b"b", None)
STEPS = 40


class Walk:
    """Takes, answers and acknowledges records in any order; partitions come and go; commits succeed or fail.

    The model knows no columns: it has a list of records for each partition, and looks at each by itself.
    Dice alone choose each step: Hypothesis's rule-based machine leaves some rules out of most examples, and in a
    hundred examples no commit's result came.
    """

    def __init__(self, order: Order, dice: random.Random) -> None:
        self.order = order
        self.dice = dice
        self.ledger = LEDGERS[order]()
        self.taken: list[Place] = []  # and not answered
        self.sent: list[Stretch] = []  # and not acknowledged
        self.received: dict[Partition, list[Place]] = {}
        self.held: dict[Place, tuple[bytes | None, int, int]] = {}  # key, rows and bytes, as they were taken
        self.taken_at: dict[Place, float] = {}
        self.gaps: set[Place] = set()  # offsets that hold no record
        self.answered: dict[Place, Answer] = {}
        self.left: set[Place] = set()
        self.settled: set[Place] = set()
        self.told: dict[Partition, int] = {}
        self.next_offset: dict[Partition, int] = {}

    def go(self, steps: int) -> None:
        """Take `steps` steps, and check after each."""
        usual: list[Callable[[], None]] = [self.take, self.answer, self.acknowledge, self.hear_of_a_commit]
        for _ in range(steps):
            self.dice.choice([*usual, *usual, *usual, self.hear_of_a_commit, self.take_a_gap, self.forget])()
            self.a_commit_reaches_the_first_unsettled_record_and_no_further()
            self.the_counters_count_what_no_commit_may_pass()
            self.each_partition_is_what_the_ledger_says()

    def take(self) -> None:
        """Take up to six records that came together."""
        partition = self.dice.choice(PARTITIONS)
        held = [
            (self.dice.choice(KEYS), self.dice.randint(0, 9), self.dice.randint(0, 99))
            for _ in range(self.dice.randint(1, 6))
        ]
        records = [record(self.next(partition), partition=partition, key=key) for key, _, _ in held]
        rows, sizes = [each[1] for each in held], [each[2] for each in held]
        now = float(records[0].offset)
        places = self.ledger.track(records, rows, sizes, now)
        self.receive(partition, [Place(places, at) for at in range(len(records))], held, now)

    def take_a_gap(self) -> None:
        """Take an offset that holds no record."""
        partition = self.dice.choice(PARTITIONS)
        offset = self.next(partition)
        gap = Place(self.ledger.track_gap(partition, offset, float(offset)), 0)
        self.gaps.add(gap)
        self.receive(partition, [gap], [(None, 0, 0)], float(offset))

    def next(self, partition: Partition) -> int:
        offset = self.next_offset.get(partition, 0) + self.dice.randint(0, 5)
        self.next_offset[partition] = offset + 1
        return offset

    def receive(
        self, partition: Partition, places: Sequence[Place], held: Sequence[tuple[bytes | None, int, int]], now: float
    ) -> None:
        self.taken += places
        self.received.setdefault(partition, []).extend(places)
        self.held.update(zip(places, held, strict=True))
        self.taken_at.update(dict.fromkeys(places, now))

    def answer(self) -> None:
        """Answer several at once, as a batch does: some that came together with one another, and some alone."""
        some = self.dice.sample(self.taken, self.dice.randint(0, min(8, len(self.taken))))
        self.taken = [place for place in self.taken if place not in some]
        met("it is answered for a partition that was forgotten", is_so=not all(self.knows(place) for place in some))
        given = {place: self.some_answer(place) for place in some}
        stretches = self.ledger.answer(self.in_columns(given))
        leaving = places_of(stretches)
        self.answered |= given
        met("neighbours leave together", is_so=any(stop - start > 1 for _, start, stop in stretches))
        met(
            "a part of those that came together leaves",
            is_so=any(len(p) > stop - start for p, start, stop in stretches),
        )

        known = [place for place in some if self.knows(place)]
        met("an answer waits for an earlier one", is_so=any(place not in leaving for place in known))
        met("earlier answers leave with it", is_so=len(leaving) > len(some))
        assert len(leaving) == len(set(leaving))
        assert set(leaving) == {place for place in self._received() if self._may_leave(place)} - self.left
        for gone in leaving:
            assert self.left.issuperset(self._awaited(gone)), "ahead of one that it waits for"
            self.left.add(gone)
        for stretch in stretches:
            assert list(self.ledger.take_answers(stretch)) == [self.answered[place] for place in places_of([stretch])]
        self.sent += stretches

    def in_columns(self, given: dict[Place, Answer]) -> list[Answered]:
        """The answers as columns; now and then of one record each."""
        if self.dice.random() < 0.3:
            return [(place.places, [place.at], [answer]) for place, answer in given.items()]
        ascending = sorted(given.items(), key=lambda each: (id(each[0].places), each[0].at))
        columns = [list(column) for _, column in groupby(ascending, lambda each: id(each[0].places))]
        self.dice.shuffle(columns)
        return [(c[0][0].places, [place.at for place, _ in c], [answer for _, answer in c]) for c in columns]

    def some_answer(self, place: Place) -> Answer:
        if place in self.gaps:
            return nothing_owed(place.partition, place.offset)
        if self.dice.random() < 0.2:
            return rejection(place.offset, place.partition)
        return "responses", None, bytes(self.dice.randint(0, 99)), [], place.partition.number, None

    def acknowledge(self) -> None:
        """Settle stretches as they were sent, or each in two parts."""
        some = self.dice.sample(self.sent, self.dice.randint(0, min(4, len(self.sent))))
        self.sent = [stretch for stretch in self.sent if stretch not in some]
        is_known = [self.ledger.knows(stretch.places) for stretch in some]
        met("it is settled after its partition was forgotten", is_so=not all(is_known))
        is_late = bool(some) and is_known[0] and self._owed(self.received[some[0].partition])[:1] != [some[0].first]
        met("it is settled before an earlier one", is_so=is_late)
        if self.dice.random() < 0.3:
            some = [Stretch(place.places, place.at, place.at + 1) for place in places_of(some)]
            later = some[len(some) // 2 :]
            some = some[: len(some) // 2]
            self.sent += later

        self.ledger.settle(some)

        self.settled.update(places_of(some))

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

        met("a partition leaves with what is sent", is_so=any(place in self.left for place in owed))
        met("a partition leaves with what is held", is_so=any(place not in self.left for place in owed))
        met("a partition leaves with what is settled behind another", is_so=not self.settled.isdisjoint(owed))
        assert self.ledger.forget([partition]) == sum(self.counts(place) for place in owed if place not in self.settled)
        assert not any(self.knows(place) for place in owed)

    def knows(self, place: Place) -> bool:
        return self.ledger.knows(place.places)

    def counts(self, place: Place) -> int:
        return place not in self.gaps

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
        """A settled record behind an open one counts as a record, but not its rows and bytes."""
        owed = [place for line in self.received.values() for place in self._owed(line)]
        heavy = [place for place in owed if place not in self.settled]

        assert self.ledger.records == sum(map(self.counts, owed))
        assert self.ledger.rows == sum(self.held[place][1] for place in heavy)
        assert self.ledger.size == sum(map(self._bytes, heavy))

    def each_partition_is_what_the_ledger_says(self) -> None:
        under_way = {place.partition for place in self._received() if place in self.left - self.settled}
        oldest = {p: self.taken_at[owed[0]] for p, line in self.received.items() if (owed := self._owed(line))}

        assert {p for p in (P0, P1, Q0) if self.ledger.awaits_delivery([p])} == under_way
        assert self.ledger.awaits_delivery() == bool(under_way)
        assert self.ledger.oldest_by_partition() == oldest
        for partition, line in self.received.items():
            owed = self._owed(line)
            assert self.ledger.owes([partition]) == bool(owed)
            if reached := line[: len(line) - len(owed)]:
                assert self.ledger.settled(partition) == reached[-1].offset
                assert self.ledger.is_behind(partition, reached[-1].offset + 2) == (not owed)

    # The model

    def _received(self) -> Iterator[Place]:
        return (place for line in self.received.values() for place in line)

    def _owed(self, line: list[Place]) -> list[Place]:
        """The places from the first unsettled one on."""
        first = next((at for at, place in enumerate(line) if place not in self.settled), len(line))
        return line[first:]

    def _awaited(self, place: Place) -> set[Place]:
        """The places whose answers go before this one's."""
        line = self.received[place.partition]
        earlier = line[: line.index(place)]
        key = self.held[place][0]
        if self.order == "partition":
            return set(earlier)
        return {one for one in earlier if self.order == "key" and key is not None and self.held[one][0] == key}

    def _may_leave(self, place: Place) -> bool:
        return self.answered.keys() >= {place, *self._awaited(place)}

    def _bytes(self, place: Place) -> int:
        """The bytes of the request, and of its answer from then on."""
        answer = self.answered.get(place)
        return self.held[place][2] if answer is None or isinstance(answer, Rejection) else len(answer[2] or b"")


IN_ANY_ORDER = (
    "it is answered for a partition that was forgotten",
    "a commit is heard of",
    "a commit is heard of that went further before",
    "a partition leaves with what is sent",
    "a partition leaves with what is held",
    "a partition leaves with what is settled behind another",
    "it is settled after its partition was forgotten",
    "it is settled before an earlier one",
    "neighbours leave together",
    "a part of those that came together leaves",
)
BESIDES = {
    "partition": ("an answer waits for an earlier one", "earlier answers leave with it"),
    "key": ("an answer waits for an earlier one", "earlier answers leave with it"),
    "none": (),
}


@pytest.mark.parametrize("order", LEDGERS)
def test_every_order_equals_its_model(order: Order) -> None:
    """They agree on the answers that leave, the reach of a commit, and the counters."""

    with meeting(*IN_ANY_ORDER, *BESIDES[order]):
        with_each_seed(100, lambda dice: Walk(order, dice).go(STEPS))

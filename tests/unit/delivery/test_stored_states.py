"""A state goes to the store outside when its answer, and all earlier ones of its partition, are in Kafka."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.builders import STATE
from tests.chunks import P0, P1
from tests.states import state
from tests.unit.delivery.test_last_states import ANSWER, Acknowledging, Leaving
from worker.core.ordering.ledger import Stretch
from worker.core.records import Fields
from worker.delivery.stored_states import SOON, StoringSink
from worker.state.changes import forgotten
from worker.state.layout import HEAD_BYTES, Sieve
from worker.state.outside_values import Change, OutsideValues, source_of


class Store:
    """A writer whose acknowledgements the test makes."""

    def __init__(self) -> None:
        self.writes: list[tuple[Sequence[Change], Stretch]] = []
        self.acknowledged: list[Stretch] = []

    def write(self, changes: Sequence[Change], stretch: Stretch) -> None:
        self.writes.append((changes, stretch))

    def written(self) -> Sequence[Stretch]:
        found, self.acknowledged = self.acknowledged, []
        return found


class Parts:
    def __init__(self) -> None:
        self.kafka, self.store, self.leaving = Acknowledging(), Store(), Leaving()
        self.sink = StoringSink(self.kafka, self.leaving.leave, self.store, OutsideValues(STATE))

    def sends(self, *states: Fields, partition: int = 0) -> Stretch:
        stretch = self.leaving.stretch(*states, partition=(P0, P1)[partition])
        self.sink.send([ANSWER], stretch)
        return stretch

    def acknowledges(self, *stretches: Stretch) -> Sequence[Stretch]:
        """Kafka acknowledges these answers. Returns the places that are durable."""
        self.kafka.due += stretches
        return self.sink.poll(5.0)

    def stores(self, *stretches: Stretch) -> Sequence[Stretch]:
        """The store acknowledges these states. Returns the places that are durable."""
        self.store.acknowledged += stretches
        return self.sink.poll(5.0)

    @property
    def asked(self) -> list[Stretch]:
        return [stretch for _, stretch in self.store.writes]


@pytest.fixture
def parts() -> Parts:
    return Parts()


def of(key: bytes, number: float = 1) -> Fields:
    return "", key, state(number), None, 0, 0


def test_a_state_is_written_after_its_answer_and_durable_after_that(parts: Parts) -> None:
    """So a state in the store proves that its request was answered."""
    one = parts.sends(of(b"a"))
    assert (parts.kafka.sent, parts.sink.poll(5.0), parts.asked) == ([([ANSWER], one)], [], [])

    assert (parts.acknowledges(one), parts.asked) == ([], [one])
    assert parts.stores(one) == [one]
    assert parts.sink.poll(5.0) == []
    assert parts.kafka.waits == [5.0, 5.0, SOON, 5.0]


def test_a_state_waits_for_earlier_answers_of_its_partition_only(parts: Parts) -> None:
    """Dead letters go to another topic, and may be acknowledged later."""
    first, second, other = parts.sends(), parts.sends(of(b"a")), parts.sends(of(b"a"), partition=1)

    assert (parts.acknowledges(second, other), parts.asked) == ([], [other])
    assert (parts.acknowledges(first), parts.asked) == ([first], [other, second])
    assert parts.stores(second, other) == [second, other]


def test_the_store_gets_a_state_with_its_source_and_what_forgets_it(parts: Parts) -> None:
    """A partition's offset means nothing in another. A tombstone keeps the offset and the time, and no state."""
    head = state(3, offset=7, time=99)[:HEAD_BYTES]
    parts.acknowledges(parts.sends(of(b"a", 2), forgotten("", 0, b"b", 7, head)))

    [([written, gone], _)] = parts.store.writes
    assert written == Change(b"a", source_of(P0) + state(2), is_forgotten=False)
    assert (gone.key, gone.is_forgotten) == (b"b", True)
    found = OutsideValues(STATE).read(P0, [gone.value], Sieve(STATE))
    assert (found.missing, found.offsets) == ([0], [7])

"""Places whose answers leave out of line: the order of answers, the reach of a commit, and what is still counted."""

from __future__ import annotations

import pytest

from tests.builders import P0, P1, record, rejection, request
from worker.core.ordering.ledger import OffsetLedger
from worker.core.ordering.order_by_key import KeyedLedger, LooseLedger
from worker.core.records import Partition, Place

both_orders = pytest.mark.parametrize("ledger_of", [LooseLedger, KeyedLedger], ids=["none", "key"])


def track(ledger: OffsetLedger, *keys: bytes | None, partition: Partition = P0) -> list[Place]:
    """Track records with these keys, two rows and ten bytes each."""
    return [ledger.track(record(at, key=key, partition=partition), 2, 10, float(at)) for at, key in enumerate(keys)]


def answer(ledger: OffsetLedger, *places: Place) -> list[Place]:
    return list(ledger.answer([(place, rejection(place.offset)) for place in places]))


def settle(ledger: OffsetLedger, *places: Place) -> None:
    answer(ledger, *places)
    for place in places:
        ledger.settle([place])


def test_without_an_order_an_answer_waits_for_nobody() -> None:
    """It does not even wait for an earlier record of its own key."""
    ledger = LooseLedger()
    first, second = track(ledger, b"a", b"a")

    assert answer(ledger, second) == [second]
    assert answer(ledger, first) == [first]


def test_answers_of_one_key_leave_in_the_order_of_their_records() -> None:
    """Answers of other keys pass them, and one batch may free several that waited."""
    ledger = KeyedLedger()
    first, other, second, third = track(ledger, b"a", b"b", b"a", b"a")

    assert answer(ledger, third, second, other) == [other]
    assert answer(ledger, first) == [first, second, third]


def test_a_record_without_a_key_waits_for_nobody() -> None:
    """No record waits for it either; an empty key is a key."""
    ledger = KeyedLedger()
    none, empty, second_none, second_empty = track(ledger, None, b"", None, b"")

    assert answer(ledger, second_none, second_empty) == [second_none]
    assert answer(ledger, empty) == [empty, second_empty]
    assert answer(ledger, none) == [none]


def test_equal_keys_of_two_partitions_do_not_wait_for_each_other() -> None:
    """Order holds only within a partition."""
    ledger = KeyedLedger()
    track(ledger, b"a")
    [other] = track(ledger, b"a", partition=P1)

    assert answer(ledger, other) == [other]


@both_orders
def test_a_gap_in_the_offsets_counts_as_no_record(ledger_of: type[OffsetLedger]) -> None:
    """It needs a place in the line only so that a commit can go past it."""
    ledger = ledger_of()

    ledger.track(record(), 0, 0, 0.0, records=0)

    assert ledger.records == 0


def test_records_of_several_keys_have_no_place_in_common() -> None:
    """One of them might have to wait while another may not."""
    with pytest.raises(AssertionError, match="several keys"):
        KeyedLedger().track(record(), 2, 10, 0.0, records=2)


@both_orders
def test_a_commit_waits_for_every_earlier_record(ledger_of: type[OffsetLedger]) -> None:
    """Later records may be settled already; then the commit passes all of them at once."""
    ledger = ledger_of()
    first, second, third = track(ledger, b"a", b"b", b"c")

    settle(ledger, third, second)
    assert ledger.committable() == {}
    assert ledger.is_next(first)

    settle(ledger, first)
    assert ledger.committable() == {P0: 3}


@both_orders
def test_what_is_settled_behind_another_is_a_record_without_rows_and_bytes(ledger_of: type[OffsetLedger]) -> None:
    """A crash would repeat it, but it holds no memory."""
    ledger = ledger_of()
    first, second = track(ledger, b"a", b"b")

    settle(ledger, second)
    assert (ledger.records, ledger.rows, ledger.size) == (2, 2, 10)

    settle(ledger, first)
    assert (ledger.records, ledger.rows, ledger.size) == (0, 0, 0)


@both_orders
def test_settled_is_not_done(ledger_of: type[OffsetLedger]) -> None:
    """Its answer is durable once acknowledged; Kafka can be told only when the earlier ones are durable, too."""
    ledger = ledger_of()
    first, second = track(ledger, b"a", b"b")

    settle(ledger, second)
    assert [ledger.is_settled(place) for place in (first, second)] == [False, True]
    settle(ledger, first)
    assert not ledger.is_done(second)
    ledger.committed({P0: 2})

    assert ledger.is_done(second)


@both_orders
def test_a_partition_awaits_delivery_while_answers_are_on_the_way(ledger_of: type[OffsetLedger]) -> None:
    """Records that wait for an answer and settled records behind them do not count."""
    ledger = ledger_of()
    _, second, third = track(ledger, b"a", b"b", b"c")
    assert not ledger.awaits_delivery()

    answer(ledger, second, third)
    ledger.settle([second])
    assert ledger.awaits_delivery()
    assert ledger.awaits_delivery([P0, P1])
    assert not ledger.awaits_delivery([P1])

    ledger.settle([third])
    assert not ledger.awaits_delivery()
    assert not ledger.awaits_delivery([P0])


@both_orders
def test_a_forgotten_partition_leaves_nothing_behind(ledger_of: type[OffsetLedger]) -> None:
    """Settled records do not count as unsettled; a late answer finds no line."""
    ledger = ledger_of()
    held, sent, settled = track(ledger, b"a", b"b", b"c")
    answer(ledger, sent)
    settle(ledger, settled)

    assert ledger.forget([P0, P1]) == 2

    assert (ledger.records, ledger.rows, ledger.size) == (0, 0, 0)
    assert not ledger.awaits_delivery()
    assert answer(ledger, held) == []
    ledger.settle([sent])
    assert (ledger.rows, ledger.size, ledger.committable()) == (0, 0, {})


@both_orders
def test_late_work_does_not_touch_a_partition_that_came_back(ledger_of: type[OffsetLedger]) -> None:
    """The new line does not know the old line's places, even for an equal key."""
    ledger = ledger_of()
    [old] = track(ledger, b"a")
    ledger.forget([P0])
    [new] = track(ledger, b"a")

    assert answer(ledger, old) == []
    assert answer(ledger, new) == [new]


def test_the_oldest_record_is_the_first_that_is_not_settled() -> None:
    """Later records may be settled already."""
    ledger = LooseLedger()
    first, second, third = track(ledger, b"a", b"b", b"c")

    settle(ledger, second)
    assert ledger.oldest_by_partition() == {P0: 0.0}

    settle(ledger, first)
    assert ledger.oldest_by_partition() == {P0: 2.0}
    assert ledger.is_next(third)


def test_records_that_travel_as_one_are_taken_apart_where_they_stand() -> None:
    """Their neighbours may be settled already; a commit reaches the first of them that is not."""
    ledger = LooseLedger()
    one = ledger.track(record(2), 3, 30, 0.0, records=3)
    [last] = [ledger.track(record(3), 1, 10, 0.0)]
    settle(ledger, last)

    first, second, third = ledger.unravel(one, [request(at, size=10) for at in range(3)])
    settle(ledger, first, third)
    assert ledger.committable() == {P0: 1}
    assert (ledger.records, ledger.rows, ledger.size) == (3, 1, 10)

    settle(ledger, second)
    assert ledger.committable() == {P0: 4}
    assert (ledger.records, ledger.rows, ledger.size) == (0, 0, 0)


def test_what_is_forgotten_is_remembered_nowhere() -> None:
    """Partitions come and go for months, so each partition has its own queues by key."""
    ledger = KeyedLedger()
    track(ledger, b"a", b"b", b"a")
    track(ledger, b"a", partition=P1)

    ledger.forget([P0, P1])

    assert not ledger._queues

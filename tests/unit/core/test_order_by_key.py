"""Places whose answers leave out of line: the order of answers, the reach of a commit, and what is still counted."""

from __future__ import annotations

import pytest

from tests.chunks import P0, P1, acknowledged, answer_of, answered, record, settled, taken
from worker.core.ordering.ledger import OffsetLedger, Place
from worker.core.ordering.order_by_key import KeyedLedger, LooseLedger
from worker.core.records import Partition, nothing_owed

both_orders = pytest.mark.parametrize("ledger_of", [LooseLedger, KeyedLedger], ids=["none", "key"])


def track(ledger: OffsetLedger, *keys: bytes | None, partition: Partition = P0) -> list[Place]:
    """Take records with these keys together, two rows and ten bytes each."""
    return taken(ledger, *[record(at, key=key, partition=partition) for at, key in enumerate(keys)])


def apart(ledger: OffsetLedger, *keys: bytes | None) -> list[Place]:
    """Take records with these keys one by one."""
    return [place for at, key in enumerate(keys) for place in taken(ledger, record(at, key=key))]


def test_without_an_order_an_answer_waits_for_nobody() -> None:
    """It does not even wait for an earlier record of its own key."""
    ledger = LooseLedger()
    first, second = track(ledger, b"a", b"a")

    assert answered(ledger, second) == [second]
    assert answered(ledger, first) == [first]


def test_answers_of_one_key_leave_in_the_order_of_their_records() -> None:
    """Answers of other keys pass them, and one batch may free several that waited."""
    ledger = KeyedLedger()
    first, other, second, third = track(ledger, b"a", b"b", b"a", b"a")

    assert answered(ledger, third, second, other) == [other]
    assert answered(ledger, first) == [first, second, third]


def test_answers_of_one_key_that_come_together_leave_together() -> None:
    """As far as there is no record of that key between them that has none yet."""
    ledger = KeyedLedger()
    places = track(ledger, b"a", b"a", b"b", b"a", b"a")[0].places
    answers = [answer_of(Place(places, at)) for at in range(5)]

    stretches = ledger.answer([(places, [0, 1, 4], [answers[0], answers[1], answers[4]])])

    assert [stretch[1:] for stretch in stretches] == [(0, 2)]
    [rest] = ledger.answer([(places, [2, 3], answers[2:4])])
    assert rest[1:] == (2, 5)
    [both] = ledger.answer([(track(ledger, b"c", b"c")[0].places, range(2), answers[:2])])
    assert both[1:] == (0, 2)


def test_answers_of_one_key_leave_in_order_from_several_polls() -> None:
    """What one record frees may have come later, and what leaves first is the oldest of all keys."""
    ledger = KeyedLedger()
    first, other, second, late_other = apart(ledger, b"a", b"b", b"a", b"b")

    assert answered(ledger, second, late_other) == []
    assert answered(ledger, other, first) == [first, other, second, late_other]


def test_answers_of_a_key_leave_in_order_although_their_topic_was_made_anew() -> None:
    """The new topic begins with lower offsets."""
    ledger = KeyedLedger()
    settled(ledger, *taken(ledger, record(97, key=b"a"), now=1.0))
    ledger.committed({P0: 98})
    [old] = taken(ledger, record(98, key=b"a"), now=1.0)
    [new] = taken(ledger, record(0, key=b"a"), now=2.0)

    assert answered(ledger, new) == []
    assert answered(ledger, old) == [old, new]


def test_a_record_without_a_key_waits_for_nobody() -> None:
    """No record waits for it either; an empty key is a key."""
    ledger = KeyedLedger()
    none, empty, second_none, second_empty = track(ledger, None, b"", None, b"")

    assert answered(ledger, second_none, second_empty) == [second_none]
    assert answered(ledger, empty) == [empty, second_empty]
    assert answered(ledger, none) == [none]


def test_equal_keys_of_two_partitions_do_not_wait_for_each_other() -> None:
    """Order holds only within a partition."""
    ledger = KeyedLedger()
    track(ledger, b"a")
    [other] = track(ledger, b"a", partition=P1)

    assert answered(ledger, other) == [other]


@both_orders
def test_a_gap_in_the_offsets_counts_as_no_record(ledger_of: type[OffsetLedger]) -> None:
    """It needs a place in the line only so that a commit can go past it."""
    ledger = ledger_of()

    gap = Place(ledger.track_gap(P0, 3, 0.0), 0)

    assert ledger.records == 0
    [stretch] = ledger.answer([(gap.places, [0], [nothing_owed(P0, 3)])])
    ledger.settle([stretch])
    assert (ledger.records, ledger.committable()) == (0, {P0: 4})


@both_orders
def test_neighbours_that_leave_together_are_one_stretch(ledger_of: type[OffsetLedger]) -> None:
    """They came together, and are sent together."""
    ledger = ledger_of()
    places = track(ledger, b"a", b"b", b"c", b"d")[0].places
    answers = [answer_of(Place(places, at)) for at in range(4)]

    stretches = ledger.answer([(places, [3], answers[3:]), (places, [0, 1], answers[:2])])

    assert [stretch[1:] for stretch in stretches] == [(0, 2), (3, 4)]
    assert [list(ledger.take_answers(stretch)) for stretch in stretches] == [answers[:2], answers[3:]]


@both_orders
def test_no_record_is_answered_twice(ledger_of: type[OffsetLedger]) -> None:
    """A second answer would leave, too."""
    ledger = ledger_of()
    first, _ = track(ledger, b"a", b"b")
    answered(ledger, first)

    with pytest.raises(AssertionError, match="answered twice"):
        answered(ledger, first)


@both_orders
def test_a_commit_waits_for_every_earlier_record(ledger_of: type[OffsetLedger]) -> None:
    """Later records may be settled already; then the commit passes all of them at once."""
    ledger = ledger_of()
    first, second, third = track(ledger, b"a", b"b", b"c")

    settled(ledger, third, second)
    assert ledger.committable() == {}
    assert ledger.is_next(first)

    settled(ledger, first)
    assert ledger.committable() == {P0: 3}


@both_orders
def test_a_commit_reaches_into_the_middle_of_what_came_together(ledger_of: type[OffsetLedger]) -> None:
    """Its neighbours may be settled already; a commit reaches the first of them that is not."""
    ledger = ledger_of()
    first, second, third = track(ledger, b"a", b"b", b"c")
    [last] = taken(ledger, record(7, key=b"d"))

    settled(ledger, last, first, third)
    assert ledger.committable() == {P0: 1}
    assert (ledger.records, ledger.rows, ledger.size) == (3, 2, 10)

    settled(ledger, second)
    assert ledger.committable() == {P0: 8}
    assert (ledger.records, ledger.rows, ledger.size) == (0, 0, 0)


@both_orders
def test_what_is_settled_behind_another_is_a_record_without_rows_and_bytes(ledger_of: type[OffsetLedger]) -> None:
    """A crash would repeat it, but it holds no memory."""
    ledger = ledger_of()
    first, second = track(ledger, b"a", b"b")

    settled(ledger, second)
    assert (ledger.records, ledger.rows, ledger.size) == (2, 2, 10)

    settled(ledger, first)
    assert (ledger.records, ledger.rows, ledger.size) == (0, 0, 0)


@both_orders
def test_settled_is_not_done(ledger_of: type[OffsetLedger]) -> None:
    """Its answer is durable once acknowledged; Kafka can be told only when the earlier ones are durable, too."""
    ledger = ledger_of()
    first, second = track(ledger, b"a", b"b")

    settled(ledger, second)
    assert [ledger.is_settled(place) for place in (first, second)] == [False, True]
    settled(ledger, first)
    assert not ledger.is_done(second)
    ledger.committed({P0: 2})

    assert ledger.is_done(second)


@both_orders
def test_a_partition_awaits_delivery_while_answers_are_on_the_way(ledger_of: type[OffsetLedger]) -> None:
    """Records that wait for an answer and settled records behind them do not count."""
    ledger = ledger_of()
    _, second, third = track(ledger, b"a", b"b", b"c")
    assert not ledger.awaits_delivery()

    answered(ledger, second, third)
    acknowledged(ledger, second)
    assert ledger.awaits_delivery()
    assert ledger.awaits_delivery([P0, P1])
    assert not ledger.awaits_delivery([P1])

    acknowledged(ledger, third)
    assert not ledger.awaits_delivery()
    assert not ledger.awaits_delivery([P0])


@both_orders
def test_a_forgotten_partition_leaves_nothing_behind(ledger_of: type[OffsetLedger]) -> None:
    """Settled records do not count as unsettled; a late answer finds no line."""
    ledger = ledger_of()
    held, sent, done = track(ledger, b"a", b"b", b"c")
    answered(ledger, sent)
    settled(ledger, done)

    assert ledger.forget([P0, P1]) == 2

    assert (ledger.records, ledger.rows, ledger.size) == (0, 0, 0)
    assert not ledger.awaits_delivery()
    assert answered(ledger, held) == []
    acknowledged(ledger, sent)
    assert (ledger.rows, ledger.size, ledger.committable()) == (0, 0, {})


@both_orders
def test_late_work_does_not_touch_a_partition_that_came_back(ledger_of: type[OffsetLedger]) -> None:
    """The new line does not know the old line's places, even for an equal key."""
    ledger = ledger_of()
    [old] = track(ledger, b"a")
    ledger.forget([P0])
    [new] = track(ledger, b"a")

    assert answered(ledger, old) == []
    assert answered(ledger, new) == [new]


def test_the_oldest_record_is_the_first_that_is_not_settled() -> None:
    """Later records may be settled already."""
    ledger = LooseLedger()
    first, second, third = apart(ledger, b"a", b"b", b"c")

    settled(ledger, second)
    assert ledger.oldest_by_partition() == {P0: 0.0}

    settled(ledger, first)
    assert ledger.oldest_by_partition() == {P0: 2.0}
    assert ledger.is_next(third)


def test_what_is_forgotten_is_remembered_nowhere() -> None:
    """Partitions come and go for months, so each partition has its own queues by key."""
    ledger = KeyedLedger()
    track(ledger, b"a", b"b", b"a")
    track(ledger, b"a", partition=P1)

    ledger.forget([P0, P1])

    assert not ledger._queues

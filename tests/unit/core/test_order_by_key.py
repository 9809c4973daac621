"""Places whose answers leave out of line: the order of answers, the reach of a commit, and what is still counted."""

from __future__ import annotations

from tests.chunks import P0, P1, answer_of, answered, record, settled, taken
from worker.core.ordering.ledger import OffsetLedger, Place
from worker.core.ordering.order_by_key import KeyedLedger
from worker.core.records import Partition


def track(ledger: OffsetLedger, *keys: bytes | None, partition: Partition = P0) -> list[Place]:
    """Take records with these keys together, two rows and ten bytes each."""
    return taken(ledger, *[record(at, key=key, partition=partition) for at, key in enumerate(keys)])


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


def test_what_is_forgotten_is_remembered_nowhere() -> None:
    """Partitions come and go for months, so each partition has its own queues by key."""
    ledger = KeyedLedger()
    track(ledger, b"a", b"b", b"a")
    track(ledger, b"a", partition=P1)

    ledger.forget([P0, P1])

    assert not ledger._queues

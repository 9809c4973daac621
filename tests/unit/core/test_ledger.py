"""Places in line: which answers may leave, and how far a commit may reach."""

from __future__ import annotations

import pytest

from tests.chunks import P0, P1, acknowledged, answer_of, answered, places_of, record, rejection, settled, taken
from worker.core.ordering.ledger import OffsetLedger, Place, Stretch, stretches_of, taken_at
from worker.core.ordering.order_by_key import LEDGERS, Order
from worker.core.records import Answer, Partition


def together(ledger: OffsetLedger, *offsets: int, partition: Partition = P0) -> list[Place]:
    """Take records that came together, of two rows and ten bytes each."""
    return taken(ledger, *[record(offset, partition=partition) for offset in offsets])


def test_answers_that_leave_together_are_one_stretch() -> None:
    """Neighbours that came together leave together, however they were answered."""
    ledger = OffsetLedger()
    places = ledger.track([record(at) for at in (3, 4, 6, 8)], [1] * 4, [4] * 4, 0.0)
    answers = [answer_of(Place(places, at)) for at in range(4)]

    [first] = ledger.answer([(places, [3], answers[3:]), (places, [0], answers[:1])])
    [rest] = ledger.answer([(places, [1, 2], answers[1:3])])

    assert (first, rest) == (Stretch(places, 0, 1), Stretch(places, 1, 4))
    assert (rest.partition, rest.records, rest.next_offset) == (P0, 3, 9)


def test_answers_are_taken_in_order() -> None:
    """An answer may be a message or a rejection. The ledger keeps none that was taken."""
    ledger = OffsetLedger()
    places = ledger.track([record(at) for at in range(4)], [1] * 4, [4] * 4, 0.0)
    answers: list[Answer] = [*[answer_of(Place(places, at)) for at in range(3)], rejection(3)]

    [first] = ledger.answer([(places, [0, 1], answers[:2])])
    [rest] = ledger.answer([(places, [2, 3], answers[2:])])

    assert [*ledger.take_answers(first), *ledger.take_answers(rest)] == answers
    assert not any(kept in answers for kept in places.answers)


def test_places_and_stretches_name_their_records() -> None:
    """A stretch can be cut in two."""
    ledger = OffsetLedger()
    first, *_, last = together(ledger, 3, 5, 6)
    whole = Stretch(first.places, 0, 3)

    assert whole.cut(2) == (Stretch(first.places, 0, 2), Stretch(first.places, 2, 3))
    assert (str(whole), str(whole.cut(2)[1]), str(last)) == ("requests/0/3 to 6", "requests/0/6", "requests/0/6")
    assert (whole.first, whole.first.partition, whole.first.offset) == (first, P0, 3)


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("order", LEDGERS)
def test_no_record_is_answered_twice(order: Order, is_gone: object) -> None:
    """Neither while its first answer waits, nor after that has left."""
    ledger = LEDGERS[order]()
    first, second = together(ledger, 0, 1)
    answered(ledger, *([first, second] if is_gone else [second]))

    with pytest.raises(AssertionError, match="answered twice"):
        answered(ledger, second)


def test_what_was_committed_is_not_committable() -> None:
    """Only new offsets are committed, and the late result of an older commit undoes nothing."""
    ledger = OffsetLedger()
    places = together(ledger, 0, 1)
    settled(ledger, *places)

    ledger.committed({P0: 2, P1: 9})
    ledger.committed({P0: 1})

    assert ledger.committable() == {}
    assert ledger.committed_offsets([P0, P1]) == {P0: 2}


def test_a_topic_that_was_made_anew_is_committed_from_its_beginning() -> None:
    """Its offsets are lower than those committed for the old topic. A late result of the old one changes nothing."""
    ledger = OffsetLedger()
    settled(ledger, *together(ledger, 98, 99))
    ledger.committed({P0: 100})

    places = together(ledger, 0, 1)
    assert ledger.committable() == {}
    settled(ledger, *places)
    assert ledger.committable() == {P0: 2}

    ledger.committed({P0: 100})
    settled(ledger, *together(ledger, 2))
    assert ledger.committable() == {P0: 3}


def test_the_oldest_record_of_each_partition_tells_how_far_behind_it_is() -> None:
    """Its timestamp counts; without one it has no age. Each record of those that came together counts."""
    ledger = OffsetLedger()
    first, _ = taken(ledger, record(3, at=1003.0), record(4, at=1004.0))
    taken(ledger, record(8, partition=P1))
    assert ledger.published_by_partition() == {P0: 1_003_000}

    settled(ledger, first)
    assert ledger.published_by_partition() == {P0: 1_004_000}


def test_the_ledger_shows_itself() -> None:
    """Its repr names the lines and their progress; that of places shows what is settled."""
    ledger = OffsetLedger()
    first, second, _ = together(ledger, 3, 4, 6)
    answered(ledger, first, second)
    acknowledged(ledger, first)

    line = "<Line requests/0 places=1 left=0 next_offset=4>"
    assert repr(ledger) == f"<OffsetLedger records=2 rows=4 bytes=18 [{line}]>"
    assert repr(first.places) == "<Places requests/0 3 to 6 010000>"


def test_a_reader_passes_a_partition_by_beyond_what_was_received_and_settled() -> None:
    """A commit must wait while an answer is owed, and is needless where commits have reached that far."""
    ledger = OffsetLedger()
    assert ledger.is_behind(P0, 1)
    assert ledger.settled(P0) == -1
    first, second = together(ledger, 2, 3)
    settled(ledger, first)
    assert not ledger.is_behind(P0, 5)
    assert ledger.settled(P0) == 2

    settled(ledger, second)

    assert not ledger.is_behind(P0, 4)
    assert ledger.is_behind(P0, 5)


def test_settled_records_are_counted_by_the_instant_of_their_poll() -> None:
    """Several stretches may be of one poll."""
    ledger = OffsetLedger()
    first, second = taken(ledger, *[record(at) for at in range(9)])[0].places, ledger.track_gap(P0, 20, 9.0)

    counts = taken_at([Stretch(first, 0, 2), Stretch(first, 3, 9), Stretch(second, 0, 1)])

    assert counts == {0.0: 8, 9.0: 0}


@pytest.mark.parametrize(
    ("indexes", "stretches"),
    [
        ([], []),
        ([4], [(4, 5)]),
        ([0, 1, 2], [(0, 3)]),
        ([0, 2, 3, 7], [(0, 1), (2, 4), (7, 8)]),
    ],
)
def test_neighbours_are_one_stretch(indexes: list[int], stretches: list[tuple[int, int]]) -> None:
    """There are as few stretches as possible."""
    places = OffsetLedger().track([record(at) for at in range(8)], [1] * 8, [4] * 8, 0.0)

    found = stretches_of(places, indexes)

    assert [(start, stop) for _, start, stop in found] == stretches
    assert [place.at for place in places_of(found)] == indexes

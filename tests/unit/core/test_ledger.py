"""Places in line: which answers may leave, and how far a commit may reach."""

from __future__ import annotations

from tests.builders import P0, P1, record, rejection
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Partition, Place


def track(ledger: OffsetLedger, *offsets: int, partition: Partition = P0) -> list[Place]:
    return [ledger.track(record(offset, partition=partition), 2, 10, float(offset)) for offset in offsets]


def settle(ledger: OffsetLedger, *places: Place) -> None:
    for place in places:
        ledger.answer([(place, rejection(place.offset))])
    for place in places:
        ledger.settle([place])


def test_an_answer_waits_for_the_earlier_ones_of_its_partition() -> None:
    """Lanes finish in any order; answers leave in the order of their records."""
    ledger = OffsetLedger()
    first, second, third = track(ledger, 0, 1, 2)

    assert ledger.answer([(third, rejection(2))]) == []
    assert ledger.answer([(first, rejection(0))]) == [first]
    assert ledger.answer([(second, rejection(1))]) == [second, third]


def test_a_commit_stops_at_the_first_unsettled_record() -> None:
    """A record that is acknowledged early does not carry the commit past its neighbour."""
    ledger = OffsetLedger()
    places = track(ledger, 3, 7, 9)
    for place in places:
        ledger.answer([(place, rejection(place.offset))])

    ledger.settle([places[1]])
    assert ledger.committable() == {}

    ledger.settle([places[0]])
    assert ledger.committable() == {P0: 8}


def test_what_was_committed_is_not_committable() -> None:
    """Only new offsets are committed, and the late result of an older commit undoes nothing."""
    ledger = OffsetLedger()
    places = track(ledger, 0, 1)
    settle(ledger, *places)

    ledger.committed({P0: 2, P1: 9})
    ledger.committed({P0: 1})

    assert ledger.committable() == {}


def test_a_topic_that_was_made_anew_is_committed_from_its_beginning() -> None:
    """Its offsets are lower than those committed for the old topic. A late result of the old one changes nothing."""
    ledger = OffsetLedger()
    settle(ledger, *track(ledger, 98, 99))
    ledger.committed({P0: 100})

    places = track(ledger, 0, 1)
    assert ledger.committable() == {}
    settle(ledger, *places)
    assert ledger.committable() == {P0: 2}

    ledger.committed({P0: 100})
    settle(ledger, *track(ledger, 2))
    assert ledger.committable() == {P0: 3}


def test_a_forgotten_partition_leaves_nothing_behind() -> None:
    """Its records are no longer counted, sent or held, and its old places belong to no line."""
    ledger = OffsetLedger()
    sent, held = track(ledger, 0, 1)
    ledger.answer([(sent, rejection(0))])

    assert ledger.forget([P0, P1]) == 2

    assert (ledger.records, ledger.rows, ledger.size) == (0, 0, 0)
    assert ledger.answer([(held, rejection(1))]) == []
    ledger.settle([sent])
    assert ledger.committable() == {}


def test_late_work_does_not_touch_a_partition_that_came_back() -> None:
    """The new line does not know the old line's places."""
    ledger = OffsetLedger()
    [old] = track(ledger, 0)
    ledger.forget([P0])
    [new] = track(ledger, 0)

    assert ledger.answer([(old, rejection(0))]) == []
    ledger.settle([old])

    assert new.outcome is None
    assert ledger.records == 1
    assert ledger.committable() == {}


def test_a_partition_awaits_delivery_while_its_answers_are_on_the_way() -> None:
    """A held record awaits an answer, not a delivery."""
    ledger = OffsetLedger()
    [place] = track(ledger, 0)
    assert not ledger.awaits_delivery([P0])

    ledger.answer([(place, rejection(0))])

    assert ledger.awaits_delivery([P0, P1])
    assert not ledger.awaits_delivery([P1])


def test_the_oldest_record_of_each_partition_tells_its_stall() -> None:
    """The first unsettled record counts, whether sent or held; settled partitions are left out."""
    ledger = OffsetLedger()
    first, _ = track(ledger, 3, 4)
    settle(ledger, *track(ledger, 8, partition=P1))
    assert ledger.oldest_by_partition() == {P0: 3.0}

    ledger.answer([(first, rejection(3))])
    assert ledger.oldest_by_partition() == {P0: 3.0}

    ledger.settle([first])
    assert ledger.oldest_by_partition() == {P0: 4.0}


def test_the_oldest_record_of_each_partition_tells_how_far_behind_it_is() -> None:
    """Its timestamp counts; without one it has no age. Each record of a run that was taken apart counts."""
    ledger = OffsetLedger()
    first, _ = (ledger.track(record(at, at=1000.0 + at), 1, 4, 9.0) for at in (3, 4))
    ledger.track(record(8, partition=P1), 1, 4, 9.0)
    assert ledger.published_by_partition() == {P0: 1_003_000}

    settle(ledger, first)
    assert ledger.published_by_partition() == {P0: 1_004_000}


def test_the_ledger_shows_itself() -> None:
    """Its repr names the lines and their progress."""
    ledger = OffsetLedger()
    [place] = track(ledger, 3)

    assert repr(ledger) == ("<OffsetLedger records=1 rows=2 bytes=10 [<Line requests/0 sent=0 held=1 next_offset=-1>]>")
    assert repr(place) == "<Place requests/0/3 settled=False>"


def test_a_reader_passes_a_partition_by_beyond_what_was_received_and_settled() -> None:
    """A commit must wait while an answer is owed, and is needless where commits have reached that far."""
    ledger = OffsetLedger()
    assert ledger.is_behind(P0, 1)
    [place] = track(ledger, 3)
    assert not ledger.is_behind(P0, 5)

    settle(ledger, place)

    assert not ledger.is_behind(P0, 4)
    assert ledger.is_behind(P0, 5)


def test_a_place_of_no_record_counts_nowhere() -> None:
    """It only holds up commits until it is settled."""
    ledger = OffsetLedger()
    marker = ledger.track(record(6), 0, 0, 0.0, records=0)

    assert ledger.records == 0
    assert ledger.committable() == {}
    settle(ledger, marker)

    assert ledger.records == 0
    assert ledger.committable() == {P0: 7}

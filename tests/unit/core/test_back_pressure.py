"""The limits on how much may be taken."""

from __future__ import annotations

from tests.chunks import POLL, record, settled, taken
from worker.core.batching.back_pressure import RESERVE, Bounds, Intake
from worker.core.ordering.ledger import OffsetLedger, Place

BOUNDS = Bounds(records=1000, rows=4000, size=100_000)


def intake(bounds: Bounds = BOUNDS) -> tuple[Intake, OffsetLedger]:
    ledger = OffsetLedger()
    return Intake(bounds, ledger, POLL), ledger


def take(ledger: OffsetLedger, records: int, rows: int = 1, size: int = 10) -> list[Place]:
    return taken(ledger, *map(record, range(records)), rows=rows, size=size)


def use_up(intake: Intake, reserve: int = RESERVE) -> None:
    for _ in range(reserve):
        assert not intake.should_pause()
        intake.took_from_reserve(1)


def test_room_follows_the_size_of_the_last_records() -> None:
    """Small records are taken by the poll, large ones by the bytes that are free."""
    gate, _ = intake()

    gate.took(10, rows=10, size=100)
    assert gate.room() == POLL

    gate.took(10, rows=10, size=200_000)
    assert gate.room() == 5


def test_room_follows_the_rows_of_the_last_records() -> None:
    """Requests of many rows are taken by the rows that are free."""
    gate, _ = intake()

    gate.took(2, rows=2000, size=20)

    assert gate.room() == 4


def test_each_bound_closes_the_intake() -> None:
    """Records, rows and bytes each have a separate bound."""
    for records, rows, size in [(1000, 1, 1), (1, 4000, 1), (1, 1, 100_000)]:
        gate, ledger = intake()
        take(ledger, records, rows, size)

        assert gate.is_full
        assert gate.room() == 0


def test_fetching_resumes_when_half_of_every_bound_is_free() -> None:
    """Pausing is slow, so it ends only when there is room for a while. The whole reserve is free again then."""
    gate, ledger = intake()
    places = take(ledger, 1000)
    use_up(gate)
    assert gate.should_pause()

    settled(ledger, *places[:499])
    assert gate.should_pause()
    settled(ledger, *places[499:500])

    assert not gate.should_pause()
    assert not gate.should_pause()
    assert gate.room() > 0
    take(ledger, 1000)
    use_up(gate)


def test_nothing_is_taken_while_fetching_pauses() -> None:
    """Below the bound, but not half free, there is no room: waiting would bring a batch no company."""
    gate, ledger = intake()
    places = take(ledger, 1000)
    use_up(gate)
    assert gate.should_pause()

    settled(ledger, *places[:100])

    assert gate.room() == 0
    assert gate.is_full


def test_rows_and_bytes_keep_fetching_paused_too() -> None:
    """Free records are not enough while the rows or bytes of a few records fill the bound."""
    for rows, size in [(2001, 1), (1, 50_001)]:
        gate, ledger = intake()
        places = take(ledger, 1000, rows=0, size=0)
        use_up(gate)
        assert gate.should_pause()
        take(ledger, 1, rows, size)

        settled(ledger, *places)

        assert gate.should_pause()


def test_the_reserve_is_whole_again_after_there_was_room() -> None:
    """Polls at the bound count from the last time there was room: a worker that is full at times never pauses."""
    gate, ledger = intake()
    places = take(ledger, 1000)
    use_up(gate, RESERVE - 1)

    settled(ledger, *places)
    assert gate.room() > 0

    take(ledger, 1000)
    use_up(gate)

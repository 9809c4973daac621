"""Suspect records: how they are chosen, which one runs next, and when suspicion ends."""

from __future__ import annotations

from tests.builders import POLICY
from tests.chunks import P0, record, taken
from tests.fakes import MODEL
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Partition, Suspect
from worker.loop.suspects import Suspects

MOST_IN_FLIGHT = 500


def suspects_of(until: int = 10, poison: int | None = None, partition: Partition = P0) -> Suspects:
    suspects = Suspects({MODEL: POLICY}, MOST_IN_FLIGHT)
    suspects.suspect([Suspect(partition, 3, poison, until)])
    return suspects


def add(suspects: Suspects, offset: int, partition: Partition = P0) -> bool:
    one = record(offset, partition=partition)
    (place,) = taken(OffsetLedger(), one)
    return suspects.add(one, place)


def test_a_suspect_ends_with_what_could_have_been_under_way() -> None:
    """A later record cannot have ended an earlier process, so from it on the partition is normal."""
    suspects = suspects_of(until=10)

    assert suspects.claims(record(9)) is not None
    assert suspects.claims(record(10)) is None
    assert not suspects


def test_no_more_is_suspect_than_a_process_holds() -> None:
    """A backlog that grew while the process died again and again does not run one by one."""
    suspects = suspects_of(until=1_000_000)

    claimed = [suspects.claims(record(at * 1_000)) is not None for at in range(MOST_IN_FLIGHT + 2)]

    assert claimed == [True] * MOST_IN_FLIGHT + [False] * 2


def test_a_partition_that_is_read_again_is_counted_again() -> None:
    """Its records come once more."""
    suspects = suspects_of(until=1_000_000)
    for at in range(MOST_IN_FLIGHT):
        suspects.claims(record(at))
    suspects.forget([P0])

    assert suspects.claims(record(0)) is not None


def test_a_partition_that_is_read_again_stays_suspect() -> None:
    """Forgetting its records does not release it; leaving does."""
    suspects = suspects_of()

    suspects.forget([P0])
    assert suspects
    suspects.release([P0])

    assert not suspects

"""A new group that finds only rejections leaves its partitions to the next worker."""

from __future__ import annotations

import pytest

from tests.chunks import P0, P1, Q0, answered, record, rejection, settled, taken
from tests.fakes import Newcomer
from worker.core.failures import TooManyRejections
from worker.core.ordering.ledger import OffsetLedger
from worker.core.rejections import FirstRejections


def test_the_next_worker_of_an_exact_group_begins_behind_what_was_answered() -> None:
    """Where answers are on the way, nobody knows how far; even if others that came with them are held."""
    group, ledger = Newcomer(), OffsetLedger()
    first = FirstRejections(group, lambda _: None, "x", lambda _: "no", is_exact=True, limit=3)
    [done, held], [under_way, also_held], [held_alone] = (
        taken(ledger, *[record(offset, partition=partition) for offset in range(count)])
        for partition, count in ((P0, 2), (P1, 2), (Q0, 1))
    )
    settled(ledger, done)
    answered(ledger, under_way)
    assert first.holds(held, rejection(1), 0.0)
    assert first.holds(also_held, rejection(1, P1), 0.0)

    with pytest.raises(TooManyRejections):
        first.holds(held_alone, rejection(0, Q0), 0.0)

    assert group.stood_back == [{P0: 1, P1: None}]

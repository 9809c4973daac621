"""Outcomes into a file: what is written is settled, and nothing is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Outcome, Partition, Place


class Writer(Protocol):
    """Where outcomes go, in the order of the records."""

    def write(self, number: int, outcome: Outcome) -> None:
        """The outcome of the record with that offset. Raises `Incomplete` when it cannot be written."""

    def flush(self) -> None:
        """No more are coming for now: a reader that reads along should see what there is."""


class FileDelivery:
    """The loop's `Delivery`. Owns nothing."""

    def __init__(self, ledger: OffsetLedger, writer: Writer) -> None:
        self._ledger = ledger
        self._writer = writer
        self.next_due: float | None = None

    @property
    def is_idle(self) -> bool:
        """Nothing is unsettled."""
        return not self._ledger.records

    def send(self, places: Sequence[Place]) -> None:
        """Write the outcomes of these places, in order."""
        for place in places:
            outcome, place.outcome = place.outcome, None
            assert outcome is not None
            self._writer.write(place.offset, outcome)
        self._ledger.settle(places)

    def push(self) -> None:
        """No more outcomes are coming for now."""
        self._writer.flush()

    def turn(self, now: float, timeout: float) -> Sequence[Partition]:  # noqa: ARG002  # a file gives no reports
        """What is written stays written."""
        return ()

    def commit_promptly(self, *, is_urgent: bool) -> None:
        """There is no commit."""

    def revoke(self, partitions: Sequence[Partition], deadline: float) -> int:  # noqa: ARG002  # a file stays
        """A file is never taken away."""
        return self._ledger.forget(partitions)

    def is_in_doubt(self, partition: Partition) -> bool:  # noqa: ARG002  # never asked
        """Nothing is committed."""
        return False

    def lost(self, partitions: Sequence[Partition]) -> int:
        """A file is never taken away."""
        return self._ledger.forget(partitions)

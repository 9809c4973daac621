"""What the loop hands on when it scores a file: outcomes to a writer, and counts of what was done, shown now and then.

What is written is settled, and nothing is committed. The methods that do nothing are those of a consumer group's
worker: the loop calls both protocols whole, so that it needs no word about where its records come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from worker.core.failures import ModelBroken
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Batch, Outcome, Partition, Place, Rejection, Suspect

SHOW_EVERY = 0.1  # seconds; a bar that is drawn ten times a second needs no more


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

    # What a consumer group's worker does besides: a file is never taken away, and nothing of it is committed.

    def turn(self, now: float, timeout: float) -> Sequence[Partition]:  # noqa: ARG002  # a file gives no reports
        return ()

    def revoke(self, partitions: Sequence[Partition], deadline: float) -> int:  # noqa: ARG002  # nothing to wait for
        return self.lost(partitions)

    def lost(self, partitions: Sequence[Partition]) -> int:
        return self._ledger.forget(partitions)

    def is_in_doubt(self, partition: Partition) -> bool:  # noqa: ARG002  # never asked
        return False

    def commit_promptly(self, *, is_urgent: bool) -> None: ...


class ScoreCounts:
    """The loop's `Events`. `outcomes` are lines or rows, `refused` those of them that were, by code with the first."""

    def __init__(self, batch_rows: int) -> None:
        """`batch_rows`: the most that one inference has, however many are handed over at once."""
        self._batch_rows = batch_rows
        self.show: Callable[[int], None] = lambda _: None
        self._show_next = 0.0
        self.outcomes = 0
        self.refused: dict[str, tuple[int, int]] = {}
        self.batches = 0
        self.rows = 0
        self.model_seconds = 0.0

    @property
    def refusals(self) -> int:
        return sum(count for count, _ in self.refused.values())

    def refuse(self, code: str, number: int) -> None:
        count, first = self.refused.get(code, (0, number))
        self.refused[code] = count + 1, min(first, number)

    def batch_ran(self, rows: int, seconds: float, failure: str | None) -> None:  # noqa: ARG002  # as the loop calls it
        self.batches += -(-rows // self._batch_rows)
        self.rows += rows
        self.model_seconds += seconds

    def turned(self, now: float, in_flight: int) -> None:  # noqa: ARG002  # as the loop calls it
        if now >= self._show_next:
            self._show_next = now + SHOW_EVERY
            self.show(self.outcomes)

    def rejected(self, rejection: Rejection) -> None:
        """Counted when its outcome is written: a batch that is refused may yet be asked again, row by row."""

    def assigned(self, partitions: Sequence[Partition]) -> None: ...
    def revoked(self, partitions: Sequence[Partition], seconds: float, unsettled: int) -> None: ...
    def lost(self, partitions: Sequence[Partition], unsettled: int) -> None: ...
    def rewound(self, partitions: Sequence[Partition]) -> None: ...
    def suspected(self, suspects: Sequence[Suspect]) -> None: ...
    def taken(self, records: int) -> None: ...
    def batch_closed(self, batch: Batch, waited: float) -> None: ...
    def paused(self, *, is_paused: bool) -> None: ...
    def answered_late(self, records: int) -> None: ...
    def device_probed(self, failure: str | None) -> None: ...
    def rows_lost(self, failure: str) -> None:
        """Results that are written already may be those of other rows. Raises `ModelBroken`."""
        raise ModelBroken(
            f"the model does not give a row for each that goes in ({failure}), so results written before may be "
            "wrong: score the file anew with --batch-size 1"
        )

"""What was done so far: the loop's events and the writers' outcomes, counted, and now and then shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worker.core.records import Batch, Partition, Rejection, Suspect

SHOW_EVERY = 0.1  # seconds; a bar that is drawn ten times a second needs no more


class Tally:
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
        """The outcome of that line or row is an error."""
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

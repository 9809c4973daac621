"""Learns how many rows of one kind of batch fit into the device's memory.

A batch that was too large halves the limit of its kind. After many full batches that ran, the limit grows by an eighth.
Each time that proves too much, the next growth takes twice as many batches. So the limit recovers on a shared device,
and a device that is too small is seldom tried with more.

If memory does not suffice even for one row, that row asks for too much itself, for example by a length in its values.
Then the halvings before it say nothing about other rows, so the limit is dropped. A real limit soon shows again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from worker.core.records import BatchKind, ClosedBy

# Full batches that must run before a limit is tried a little higher.
FIRST_PATIENCE = 64
# The limit grows by one part in this many.
GROWTH = 8
# How many kinds have their limit remembered, the latest. Where shapes are not padded, publishers choose the kinds.
MOST_REMEMBERED = 1024


class Limit(NamedTuple):
    """Most rows of a batch, and why a batch that reaches them closes."""

    rows: int
    why: ClosedBy


@dataclass(slots=True)
class _Lesson:
    """The limit of one kind: the device has memory for `rows`, and `shown` full batches have run since."""

    rows: int
    patience: int = FIRST_PATIENCE
    shown: int = 0
    has_grown: bool = False  # since memory ran out the last time


class MemoryLimits:
    """Owns the limits: how many rows the device has memory for, by the kind of the batch."""

    def __init__(self) -> None:
        self._lessons: dict[BatchKind, _Lesson] = {}

    def __bool__(self) -> bool:
        """True if any kind has a limit: nearly never."""
        return bool(self._lessons)

    def limit(self, kind: BatchKind, otherwise: Limit) -> Limit:
        """The device's limit if it is lower than the other one, else the other one."""
        lesson = self._lessons.get(kind)
        return otherwise if lesson is None or lesson.rows >= otherwise.rows else Limit(lesson.rows, ClosedBy.MEMORY)

    def ran_out(self, kind: BatchKind, rows: int) -> None:
        """Learn that a batch of `rows` was too large. A single row says nothing about others: then drop the limit."""
        lesson = self._lessons.pop(kind, None)
        if rows == 1:
            return
        if lesson is None:
            lesson = _Lesson(rows)
        elif lesson.has_grown and rows <= lesson.rows:  # else the batch was closed under an earlier limit
            lesson.patience *= 2
        lesson.rows, lesson.shown, lesson.has_grown = min(lesson.rows, rows // 2), 0, False
        if len(self._lessons) >= MOST_REMEMBERED:
            del self._lessons[next(iter(self._lessons))]
        self._lessons[kind] = lesson

    def ran(self, kind: BatchKind, rows: int, closed_by: ClosedBy) -> bool:
        """Learn that a batch of `rows` did run. Returns True if the limit has grown by that.

        A batch also counts as full if the next request did not fit: requests of two rows never reach an odd limit.
        """
        lesson = self._lessons.get(kind)
        if lesson is None or (rows < lesson.rows and not (closed_by is ClosedBy.MEMORY and 2 * rows > lesson.rows)):
            return False
        lesson.shown += 1
        if lesson.shown < lesson.patience:
            return False
        lesson.rows, lesson.shown, lesson.has_grown = lesson.rows + max(1, lesson.rows // GROWTH), 0, True
        return True

"""How many rows a batch of one kind may hold, as far as the device's memory goes.

A batch that was too large halves the limit of its kind. After many full batches that did run, the limit grows by an
eighth; each time that proves too much, it takes twice as many. So a shared device gets its rows back, and one that is
too small is seldom asked again.

A row for which memory does not suffice even alone asks for too much itself, as by a length among its values. Then the
halvings on the way to it say nothing of other rows, and the limit goes: a true one comes back with the next full batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from worker.core.records import BatchKind, ClosedBy

# Full batches that must run before a limit is tried a little higher.
FIRST_PATIENCE = 64
# By one part in so many it grows.
GROWTH = 8
# Kinds whose limit is remembered, the latest ones; publishers choose their shapes where nothing is padded.
MOST_REMEMBERED = 1024


class Limit(NamedTuple):
    """Most rows of a batch, and why a batch that reaches them closes."""

    rows: int
    why: ClosedBy


@dataclass(slots=True)
class _Lesson:
    """One kind's lesson: `rows` that the device has memory for, and how many batches showed it."""

    rows: int
    patience: int = FIRST_PATIENCE
    shown: int = 0
    has_grown: bool = False  # since memory ran out


class MemoryLimits:
    """The rows that the device has memory for, by the kind of the batch."""

    def __init__(self) -> None:
        self._lessons: dict[BatchKind, _Lesson] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to remember: nearly never."""
        return bool(self._lessons)

    def limit(self, kind: BatchKind, otherwise: Limit) -> Limit:
        """The device's limit where it is the lower one."""
        lesson = self._lessons.get(kind)
        return otherwise if lesson is None or lesson.rows >= otherwise.rows else Limit(lesson.rows, ClosedBy.MEMORY)

    def ran_out(self, kind: BatchKind, rows: int) -> None:
        """So many rows were too many; a single one is to blame itself."""
        lesson = self._lessons.pop(kind, None)
        if rows == 1:
            return
        if lesson is None:
            lesson = _Lesson(rows)
        elif lesson.has_grown and rows <= lesson.rows:  # else it was closed before this was known
            lesson.patience *= 2
        lesson.rows, lesson.shown, lesson.has_grown = min(lesson.rows, rows // 2), 0, False
        if len(self._lessons) >= MOST_REMEMBERED:
            del self._lessons[next(iter(self._lessons))]
        self._lessons[kind] = lesson

    def ran(self, kind: BatchKind, rows: int, closed_by: ClosedBy) -> bool:
        """So many rows did run. Whether the limit has grown by that.

        A batch is full, too, if the next request did not fit: requests of two rows never reach an odd limit.
        """
        lesson = self._lessons.get(kind)
        if lesson is None or (rows < lesson.rows and not (closed_by is ClosedBy.MEMORY and 2 * rows > lesson.rows)):
            return False
        lesson.shown += 1
        if lesson.shown < lesson.patience:
            return False
        lesson.rows, lesson.shown, lesson.has_grown = lesson.rows + max(1, lesson.rows // GROWTH), 0, True
        return True

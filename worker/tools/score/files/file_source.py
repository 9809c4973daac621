"""What all files that are scored have in common as a `Source`: they are not shared, and can be paused."""

from __future__ import annotations

from collections.abc import Sequence

from worker.core.records import Record
from worker.ports import Assignments


class FileSource:
    """The part of a `Source` that all files share. Owns whether it is paused.

    `is_live`: more may come while we wait. `most_rows`, `most_bytes`: of one record, where it may exceed a batch.
    """

    def __init__(self, *, is_live: bool = False, most_rows: int = 1, most_bytes: int = 1) -> None:
        self.is_live = is_live
        self.most_rows = most_rows
        self.most_bytes = most_bytes
        self._is_paused = False

    @property
    def is_over(self) -> bool:
        """All is read."""
        raise NotImplementedError

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        """The next records; raises `Incomplete` when the file cannot be read any more."""
        raise NotImplementedError

    def subscribe(self, assignments: Assignments) -> None:
        """A file has one reader, so no partitions come and go."""

    def pause(self) -> None:
        """From now on a poll brings nothing."""
        self._is_paused = True

    def resume(self) -> None:
        """From now on it brings records again."""
        self._is_paused = False

    def close(self) -> None:
        """The file is its opener's."""

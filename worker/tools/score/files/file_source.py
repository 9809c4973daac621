"""What a file need not do as a `Source`: it has no group, no rebalance and no offsets to commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from worker.core.records import CommitResult, Partition, Record
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
        """There is nobody to share a file with."""

    def pause(self) -> None:
        """From now on a poll brings nothing."""
        self._is_paused = True

    def resume(self) -> None:
        """From now on it brings records again."""
        self._is_paused = False

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """How far a file is answered stands in the file of its answers."""

    def commit_results(self) -> Sequence[CommitResult]:
        """None: nothing is committed."""
        return ()

    def rewind(self, partitions: Sequence[Partition]) -> None:
        """Never asked for: what is written stays written."""

    def withhold(self, partition: Partition) -> None:
        """Never asked for: a file has no suspects."""

    def release(self, partition: Partition) -> None:
        """As little."""

    def positions(self) -> Mapping[Partition, int]:
        """Nothing is ever passed over."""
        return {}

    def note_isolated_run(self, partition: Partition, offset: int) -> bool:  # noqa: ARG002  # as the loop would call it
        """As little."""
        return True

    def withdraw_note(self, partition: Partition, offset: int) -> bool:  # noqa: ARG002  # as the loop would call it
        """As little."""
        return True

    def close(self) -> None:
        """The file is its opener's."""

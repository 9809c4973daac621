"""The states of a model that has none: nothing comes, nothing waits, nothing is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from worker.core.chunk import Prediction
from worker.core.records import Partition, Record


class Stateless:
    """Answers the loop's questions about states (`ports.States`)."""

    wait = None
    kept = None

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Restore nothing."""

    def is_restoring(self, _: Partition) -> bool:
        return False

    def restore_some(self) -> bool:
        return False

    def conclude(self, predictions: Sequence[Prediction]) -> None:
        """Write nothing."""

    def rewind(self, partitions: Collection[Partition]) -> None:
        """Undo nothing."""

    def take_back(self, records: Iterable[Record]) -> None:
        """Undo nothing."""

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop nothing."""

"""Records that the client cannot read: a batch damaged on a broker's disk, or packed in a way nobody understands.

The client reports such a record at the same offset for ever (rdk #5581) and would hold up its partition for good. A
failure is believed the third time: until then it may be a bad network card. The records behind it in the same batch are
unreadable for the same reason, and are believed at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from worker.core.records import Partition

ATTEMPTS = 3


class Unreadable:
    """Where each partition is stuck, and how often it failed there. Owned by the source."""

    def __init__(self) -> None:
        self._stuck: dict[Partition, tuple[int, int]] = {}

    def failed(self, partition: Partition, offset: int) -> tuple[int, bool]:
        """Note a failure. Returns the offset it is about, and whether that record is to be given up.

        A damaged batch is reported by its first offset, however far into it we have come.
        """
        stuck, failures = self._stuck.get(partition, (offset, 0))
        at, failures = (stuck, failures + 1) if offset <= stuck else (offset, 1)
        is_certain = failures >= ATTEMPTS
        # The next one of the batch is given up at once.
        self._stuck[partition] = (at + 1, ATTEMPTS - 1) if is_certain else (at, failures)
        return at, is_certain

    def forget(self, partitions: Iterable[Partition]) -> None:
        """They are not ours any more."""
        for partition in partitions:
            self._stuck.pop(partition, None)

"""Records that came and may not be handed out yet, and those that may and wait for room in the loop."""

from __future__ import annotations

from collections.abc import Sequence

from worker.core.records import Partition, Record

# So many records of one partition are held before it is fetched no more, or so many bytes of values of all of them.
MOST_HELD = 1_000
MOST_BYTES_HELD = 16 * 1024 * 1024


class HeldRecords:
    """Filled by the gates, emptied by the source; both look at `held` and `ready` in each poll, and change neither."""

    def __init__(self) -> None:
        self.held: dict[Partition, list[Record]] = {}  # not to be handed out yet
        self.ready: list[Record] = []  # to be handed out, in order
        self._bytes: dict[Partition, int] = {}
        self._all_bytes = 0

    def hold(self, record: Record) -> bool:
        """Keep it. Returns whether its partition is to be fetched no more."""
        held = self.held.setdefault(record.partition, [])
        held.append(record)
        size = len(record.value or b"")
        self._bytes[record.partition] = self._bytes.get(record.partition, 0) + size
        self._all_bytes += size
        return len(held) >= MOST_HELD or self._all_bytes >= MOST_BYTES_HELD

    def first(self, partition: Partition) -> int:
        """The offset of the first one held of it."""
        return self.held[partition][0].offset

    def let_go(self, partition: Partition) -> None:
        """What is held of it may be handed out."""
        self.ready += self._remove(partition)

    def drop(self, partition: Partition) -> bool:
        """Nothing of it is to be handed out. Returns whether something was held."""
        self.ready = [record for record in self.ready if record.partition != partition]
        return bool(self._remove(partition))

    def take(self, most: int) -> Sequence[Record]:
        """What may be handed out now: ahead of all that a fetch brings, for it came before."""
        taken, self.ready = self.ready[:most], self.ready[most:]
        return taken

    def behind(self, records: Sequence[Record], most: int) -> Sequence[Record]:
        """What is ready, with these behind it: they came later, perhaps of the same partitions."""
        self.ready += records
        return self.take(most)

    def _remove(self, partition: Partition) -> Sequence[Record]:
        self._all_bytes -= self._bytes.pop(partition, 0)
        return self.held.pop(partition, ())

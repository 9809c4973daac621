"""Ledgers whose answers may leave before the answers to earlier records of their partition.

    partition   an answer waits for the answers to all earlier records of its partition: `OffsetLedger`
    key         an answer waits for the answers to earlier records of its key: `KeyedLedger`
    none        an answer waits for no other: `LooseLedger`

With every order a commit waits for all earlier records. So a place stays in its line, in the order received, until all
places before it are settled:

      passed  │ on the way │ settled │ settled │ no answer yet │ on the way │ settled
    ──────────┼──────────────────────────────────────────────────────────────────────▶ received
         committable

If a place is settled before an earlier one, it still counts as a record, because it would be answered again after a
crash. The bound in records limits such repeats. Rows and bytes of the place count no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from worker.core.ordering.ledger import Answered, Line, OffsetLedger, Place, Places, Stretch, stretches_of
from worker.core.records import Partition, Record

Order = Literal["partition", "key", "none"]


class LooseLedger(OffsetLedger):
    """A ledger whose answers leave as soon as they are known."""

    def answer(self, answers: Iterable[Answered]) -> list[Stretch]:
        free: dict[Places, list[int]] = {}
        for places, at, given in answers:
            if not places.line.is_forgotten:
                self._note(places, at, given)
                self._free(places, at, free)
        leaving: list[Stretch] = []
        for places, indexes in sorted(free.items(), key=_age):  # a key's answers may be in several places
            leaving += stretches_of(places, sorted(indexes))
        for places, start, stop in leaving:
            places.line.on_the_way += stop - start
        return leaving

    def _free(self, places: Places, at: Sequence[int], free: dict[Places, list[int]]) -> None:
        """Add to `free` the indexes of places that may leave now, because these have their answers."""
        free.setdefault(places, []).extend(at)


class KeyedLedger(LooseLedger):
    """A ledger whose answers leave in the order of their key's records. A record without a key waits for no other."""

    def __init__(self) -> None:
        super().__init__()
        self._queues: dict[Line, dict[bytes, list[Place]]] = {}  # places whose answers have not left, by key

    def track(self, records: Sequence[Record], rows: list[int], sizes: list[int], now: float) -> Places:
        places = super().track(records, rows, sizes, now)
        places.keys = [record[2] for record in records]
        queues = self._queues.setdefault(places.line, {})
        for at, key in enumerate(places.keys):
            if key is not None:
                queues.setdefault(key, []).append(tuple.__new__(Place, (places, at)))
        return places

    def _free(self, places: Places, at: Sequence[int], free: dict[Places, list[int]]) -> None:
        if places.keys is None:  # a gap has none
            super()._free(places, at, free)
            return
        queues = self._queues[places.line]
        for index in at:
            key = places.keys[index]
            if key is None:
                free.setdefault(places, []).append(index)
            elif key in queues:
                self._free_key(queues, key, free)

    @staticmethod
    def _free_key(queues: dict[bytes, list[Place]], key: bytes, free: dict[Places, list[int]]) -> None:
        """Add the answers of this key that have no earlier one to wait for."""
        queue, count = queues[key], 0
        for places, at in queue:
            if places.answers[at] is None:
                break
            free.setdefault(places, []).append(at)
            count += 1
        # One cut for all: to take out 20,000 places of a key one by one moves all others each time.
        del queue[:count]
        if not queue:
            del queues[key]

    def forget(self, partitions: Iterable[Partition]) -> int:
        lines = self._known(partitions)
        for line in lines:
            self._queues.pop(line, None)
        return super().forget([line.partition for line in lines])


def _age(free: tuple[Places, list[int]]) -> tuple[float, int]:
    """The key that sorts places by age. A topic that was made anew begins with lower offsets, but later."""
    return free[0].taken_at, free[0].offsets[0]


LEDGERS: Mapping[Order, type[OffsetLedger]] = {"partition": OffsetLedger, "key": KeyedLedger, "none": LooseLedger}

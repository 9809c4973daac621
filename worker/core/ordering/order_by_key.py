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
crash. The bound in records limits such repeats, and the search for a record that ends the process (`suspects.py`). Rows
and bytes of the place count no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Line, Outcome, Partition, Place, Record

Order = Literal["partition", "key", "none"]


class LooseLedger(OffsetLedger):
    """A ledger whose answers leave as soon as they are known. A line keeps all places in `held`; `sent` stays empty."""

    def __init__(self) -> None:
        super().__init__()
        self._on_the_way: Counter[Line] = Counter()  # places that have left and are not settled; no entry for 0

    def answer(self, outcomes: Iterable[tuple[Place, Outcome]]) -> Sequence[Place]:
        answered: list[Place] = []
        for place, outcome in outcomes:
            place.outcome = outcome
            if self.knows(place):
                answered.append(place)
        leaving = self._free(answered)
        self._on_the_way.update([place.line for place in leaving])
        return leaving

    def _free(self, answered: list[Place]) -> list[Place]:
        """The places that may leave now: of these, and of the places that waited for these."""
        return answered

    def settle(self, places: Iterable[Place]) -> None:
        places = list(places)
        for place in filter(self.knows, places):
            self._lighten(place)
        super().settle(places)

    def _lighten(self, place: Place) -> None:
        """Count no rows and bytes for a settled place. It may have to stay in its line, and counts as a record."""
        self._on_the_way[place.line] -= 1
        if not self._on_the_way[place.line]:
            del self._on_the_way[place.line]
        self.rows -= place.rows
        place.rows = 0
        self.weigh(place, 0)

    def awaits_delivery(self, partitions: Iterable[Partition] | None = None) -> bool:
        if partitions is None:
            return bool(self._on_the_way)
        return any(line in self._on_the_way for line in self._known(partitions))

    def is_settled(self, place: Place) -> bool:
        """True if its answer is durable; a commit may still have to wait for other answers."""
        return place.is_settled

    def forget(self, partitions: Iterable[Partition]) -> int:
        lines = self._known(partitions)
        settled = sum(place.records for line in lines for place in line.held if self.is_settled(place))
        for line in lines:
            del self._on_the_way[line]
        return super().forget([line.partition for line in lines]) - settled


class KeyedLedger(LooseLedger):
    """A ledger whose answers leave in the order of the records of their key. A record without a key waits for no other.

    Every place is of one record or of a gap, because records that travel as one may have different keys.
    """

    def __init__(self) -> None:
        super().__init__()
        self._queues: dict[Line, dict[bytes, list[Place]]] = {}  # places whose answers have not left, by key

    def track(self, record: Record, rows: int, size: int, now: float, records: int = 1) -> Place:
        assert records <= 1, "records of several keys have one place"
        place = super().track(record, rows, size, now, records)
        place.key = record.key
        if record.key is not None:
            self._queues.setdefault(place.line, {}).setdefault(record.key, []).append(place)
        return place

    def _free(self, answered: list[Place]) -> list[Place]:
        leaving = [place for place in answered if place.key is None]
        for line, key in {(place.line, place.key): None for place in answered if place.key is not None}:
            queue = self._queues[line][key]
            # One cut per key and batch: to take out 20,000 places of a key one by one moves all others each time.
            known = next((at for at, place in enumerate(queue) if place.outcome is None), len(queue))
            leaving += queue[:known]
            del queue[:known]
            if not queue:
                del self._queues[line][key]
        return leaving

    def forget(self, partitions: Iterable[Partition]) -> int:
        lines = self._known(partitions)
        for line in lines:
            self._queues.pop(line, None)
        return super().forget([line.partition for line in lines])


LEDGERS: Mapping[Order, type[OffsetLedger]] = {"partition": OffsetLedger, "key": KeyedLedger, "none": LooseLedger}

"""The sources of a snapshot other than counts: the partitions held, and parts of a worker that know their own state.

The loop's thread reads them, except `running_since`, which any thread may read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from worker.core.records import Partition, Standing
from worker.core.stalls import Stall
from worker.telemetry import metrics
from worker.telemetry.metrics import Labels, Numbers, since_then

if TYPE_CHECKING:
    from worker.core.ordering.ledger import OffsetLedger
    from worker.state import KeyStates


@dataclass(frozen=True, slots=True)
class WatchedParts:
    """The parts that every snapshot asks, so that they need not report each change."""

    ledger: OffsetLedger
    states: KeyStates | None
    running_since: Callable[[], float | None]  # the start of the oldest inference in a lane
    linger: Callable[[], float]
    stop_asked: Callable[[], bool]
    waiting_for_key: Callable[[], int]
    store_away_since: Callable[[], float | None]
    starts_awaited: Callable[[], int]  # how many partitions have no known beginning yet
    registry_away_since: Callable[[], float | None] = lambda: None

    def read(self, numbers: Numbers, held: Mapping[Partition, Labels], now: float, date: float) -> None:
        """Set the numbers that only these parts know. `date` is `now` in seconds since the epoch."""
        numbers.set(metrics.LINGER, self.linger())
        numbers.set(metrics.ROWS_IN_FLIGHT, self.ledger.rows)
        numbers.set(metrics.BYTES_IN_FLIGHT, self.ledger.size)
        if self.states is not None:
            numbers.set(metrics.STATES, self.states.keys)
            numbers.set(metrics.STATE_BYTES, self.states.size)
            numbers.set(metrics.STATES_LOADED, self.states.loads)
            numbers.set(metrics.RESTORING, self.states.restoring)
            numbers.set(metrics.RESTORE_LEFT, self.states.left_to_restore)
        numbers.set(metrics.WAITING_FOR_KEY, self.waiting_for_key())
        numbers.replace(metrics.STORE_AWAY, since_then(self.store_away_since()))
        numbers.replace(metrics.REGISTRY_AWAY, since_then(self.registry_away_since()))
        oldest, published, epoch = self.ledger.oldest_by_partition(), self.ledger.published_by_partition(), now - date
        numbers.replace(metrics.STALL, {labels: oldest.get(p, inf) for p, labels in held.items()})
        numbers.replace(
            metrics.OLDEST_REQUEST, {labels: epoch + published.get(p, inf) / 1000 for p, labels in held.items()}
        )

    def awaited(self) -> str | None:
        """The reason why some partitions are not served yet, which comes from Kafka; None: all are served."""
        if awaited := self.starts_awaited():
            return f"where {awaited} partitions begin is not known yet: what comes now may not be read"
        if (states := self.states) is None or not states.restoring:
            return None
        left = states.left_to_restore
        return f"the states of {states.restoring} partitions are being read back: about {left} to go"


class HeldPartitions:
    """The partitions that this replica holds, how far each is, and which stand still.

    `held` has the labels of each partition. `stalls` are the partitions that stand still although their logs go on, and
    `waiting` those that wait for a schema. Owned by the events, on the loop's thread.
    """

    def __init__(self) -> None:
        self.held: dict[Partition, Labels] = {}
        self.stalls: dict[Partition, Stall] = {}
        self.waiting: set[Partition] = set()
        self._committed: dict[Partition, int] = {}  # next offsets, since the assignment

    def __len__(self) -> int:
        return len(self.held)

    def add(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.held[partition] = (partition.topic, str(partition.number))
            self._committed.pop(partition, None)

    def remove(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.held.pop(partition, None)
            self.stalls.pop(partition, None)
            self.waiting.discard(partition)

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        self._committed.update(offsets)

    @property
    def all_stalled(self) -> bool:
        """True if all partitions held stand still."""
        return bool(self.held) and self.held.keys() <= self.stalls.keys()

    def lag(self, standings: Mapping[Partition, Standing]) -> dict[Labels, float]:
        """How many offsets each partition's commit is behind its end.

        Counted from the furthest commit known, because the consumer does not learn what a transaction commits.
        """
        return {
            self.held[p]: max(0, end - max(next_offset, self._committed.get(p, 0)))
            for p, (next_offset, end) in standings.items()
            if p in self.held
        }

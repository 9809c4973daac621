"""The parts of a worker that are asked for their state with every snapshot, instead of reporting each change.

Asked on the loop's thread, but for `running_since`, which any thread may read. Owns since when nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Protocol

from worker.core.records import Partition
from worker.telemetry.metrics import declared as metrics
from worker.telemetry.metrics.metric_values import MetricValues


class WatchedLedger(Protocol):
    """What is taken and not settled."""

    rows: int
    size: int

    def oldest_by_partition(self) -> Mapping[Partition, float]: ...
    def published_by_partition(self) -> Mapping[Partition, int]: ...
    def committable(self) -> Mapping[Partition, int]: ...


class WatchedLanes(Protocol):
    @property
    def running_since(self) -> float | None: ...


class WatchedBatcher(Protocol):
    @property
    def linger(self) -> float: ...


class WatchedSignals(Protocol):
    @property
    def stop_asked(self) -> bool: ...


class WatchedStates(Protocol):
    """What the model remembers of each key."""

    @property
    def keys(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def loads(self) -> int: ...
    @property
    def restoring(self) -> int: ...
    @property
    def left_to_restore(self) -> int: ...


class WatchedTurns(Protocol):
    """Requests that wait for one of their key."""

    waiting: int


class WatchedStage(Protocol):
    """Requests that wait for the state of their key."""

    @property
    def waiting(self) -> int: ...


class WatchedStore(Protocol):
    away_since: float | None


class WatchedPlaces(Protocol):
    """Partitions of which it is not known yet where they begin."""

    @property
    def places_awaited(self) -> int: ...


class WatchedParts:
    """Where stalls, commit lag, the running inference's age, the linger and the wish to stop are read."""

    def __init__(  # noqa: PLR0913, PLR0917  # each part once
        self,
        ledger: WatchedLedger,
        lanes: WatchedLanes,
        batcher: WatchedBatcher,
        signals: WatchedSignals,
        states: WatchedStates | None = None,
        turns: WatchedTurns | None = None,
        fetch: WatchedStage | None = None,
        store: WatchedStore | None = None,
        places: WatchedPlaces | None = None,
    ) -> None:
        self._fetch, self._store = fetch, store
        self.ledger, self.lanes, self.signals, self.states = ledger, lanes, signals, states
        self.places, self._turns = places, turns
        self._batcher = batcher
        self._uncommitted_since: float | None = None

    def committed(self) -> None:
        self._uncommitted_since = None

    def read(self, values: MetricValues, held: Iterable[Partition], now: float, date: float) -> None:
        """Set the values that only these parts know; `held` are the partitions that may be stuck.

        `date` is `now` in seconds since the epoch.
        """
        values.set(metrics.LINGER, self._batcher.linger)
        values.set(metrics.ROWS_IN_FLIGHT, self.ledger.rows)
        values.set(metrics.BYTES_IN_FLIGHT, self.ledger.size)
        if self.states is not None:
            values.set(metrics.STATES, self.states.keys)
            values.set(metrics.STATE_BYTES, self.states.size)
            values.set(metrics.STATES_LOADED, self.states.loads)
            values.set(metrics.RESTORING, self.states.restoring)
            values.set(metrics.RESTORE_LEFT, self.states.left_to_restore)
        if self._turns is not None:
            values.set(metrics.WAITING_FOR_KEY, self._turns.waiting)
        if self._fetch is not None:
            values.set(metrics.WAITING_FOR_STATE, self._fetch.waiting)
        if self._store is not None:
            since = self._store.away_since
            values.replace(metrics.STORE_AWAY, {} if since is None else {(): since})
        oldest = self.ledger.oldest_by_partition()
        values.replace(metrics.STALL, {(p.topic, str(p.number)): oldest.get(p, inf) for p in held})
        published, epoch = self.ledger.published_by_partition(), now - date
        values.replace(
            metrics.OLDEST_REQUEST, {(p.topic, str(p.number)): epoch + published.get(p, inf) / 1000 for p in held}
        )
        if not self.ledger.committable():
            self._uncommitted_since = None
        elif self._uncommitted_since is None:
            self._uncommitted_since = now
        values.replace(metrics.COMMIT_LAG, {} if self._uncommitted_since is None else {(): self._uncommitted_since})

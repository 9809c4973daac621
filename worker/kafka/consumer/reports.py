"""What the consumer says of itself once a second: the watcher hears it, and a stand-by learns that it has joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import Consumer

from worker.core.records import Partition, Standing
from worker.kafka.client.log import ClientLog
from worker.kafka.client.statistics import Watcher, read_consumer
from worker.kafka.consumer.deleted_records import DeletedRecords


class Reports:
    """Reads each report. Owned by the source, which says where the group stood when a partition was begun."""

    def __init__(
        self, watcher: Watcher | None, deleted: DeletedRecords, begun: Callable[[Partition], int], log: ClientLog
    ) -> None:
        self._watcher = watcher
        self._deleted = deleted
        self._begun = begun
        self._log = log

    def heard(self, consumer: Consumer, report: str) -> str | None:
        """Tell the watcher. Returns the coordinator's state, None for a report not understood; raises nothing."""
        try:
            seen = read_consumer(report)
            if self._watcher is not None:
                self._watcher.consumer_seen(seen.connections, self._since_assigned(seen.standings))
        except Exception as error:  # noqa: BLE001  # no request waits for a number on a page
            self._log.tell("statistics", f"the consumer's statistics are not understood: {error!r}")
            return None
        if self._watcher is not None:
            self._deleted.tell(consumer, self._watcher)
        return seen.coordinator

    def _since_assigned(self, standings: Mapping[Partition, Standing]) -> Mapping[Partition, Standing]:
        """Of a partition that comes back the client still has its own last commit, whatever others did meanwhile.

        What the group has beyond the end is of records that are gone (`gates.py`): nothing is read up to there.
        """
        return {
            partition: seen._replace(next_offset=max(seen.next_offset, begun)) if begun <= seen.end else seen
            for partition, seen in standings.items()
            for begun in (self._begun(partition),)
        }


class StandBy:
    """Notices that we are in the group though it has no partition for us: under KIP-848 no callback says so.

    The client's statistics do: a member whose coordinator is up has joined within a few hundred milliseconds, or an
    error has said why not. Not so a classic member: its coordinator is up long before all others have joined anew, and
    then a callback says so.
    """

    def __init__(self) -> None:
        self._is_known = False
        self._sightings = 0

    def is_known(self) -> None:
        """A callback said so."""
        self._is_known = True

    def lost(self) -> None:
        """We are out, and the client joins again."""
        self._is_known = False
        self._sightings = 0

    def heard(self, coordinator: str) -> bool:
        """Whether to tell now that we are in: the second time in a row that the coordinator is up, and then no more."""
        if self._is_known:
            return False
        self._sightings = self._sightings + 1 if coordinator == "up" else 0
        self._is_known = self._sightings >= 2
        return self._is_known

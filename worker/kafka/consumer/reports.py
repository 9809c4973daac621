"""What the consumer says of itself once a second, told to the watcher: how far behind we are, and what was deleted."""

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

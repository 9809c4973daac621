"""All replicas end in good order, the group loses its offset of one partition, and replicas begin again.

| | promise |
|---|---|
| at least once | the requests are answered again |
| exactly once | likewise, and the first replica that begins says so |
| exactly once with state | none begins; with the offset set as the error says, no request is applied to a state again |
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.faults.brokers import Brokers
from tests.faults.checker import Topics
from tests.faults.fleet import Fleet
from tests.faults.plan import Fault
from tests.kafka.cluster import Cluster, patiently
from tests.kafka.forgotten_offsets import forget_offsets

WARNED = "has no offset for 1 of"


class LostOffsets:
    """Owns nothing. `tell` hears of the partition, the offset from which it is read again, and the committed offset."""

    def __init__(
        self,
        fleet: Fleet,
        broker: Brokers,
        *,
        group: str,
        topics: Topics,
        is_refused: bool,
        tell: Callable[[int, int, int], None],
    ) -> None:
        self._fleet = fleet
        self._broker = broker
        self._group = group
        self._topics = topics
        self._is_refused = is_refused
        self._tell = tell

    def do(self, fault: Fault) -> str:
        """Do the fault; return a sentence about it."""
        number = fault.choose(self._topics.partitions)
        topic, partition = self._topics.lying(number)
        self._fleet.end()
        cluster = Cluster(self._broker.bootstrap_servers)
        committed = cluster.committed(self._group, topic).get(partition, 0)
        if committed > 0:
            forget_offsets(self._broker.bootstrap_servers, self._group, topic, [partition])
            begin = self._go_on_as_told(cluster, topic, partition) if self._is_refused else 0
            self._tell(number, begin, committed)
        self._fleet.fill()
        logs = [replica.whole_log for replica in self._fleet.slots.values()]
        if committed > 0 and not self._is_refused and not any(WARNED in log for log in logs):
            self._fleet.note_broken(f"the offset of partition {number} is gone, and no replica says so")
        return f"of partition {number}, {committed}" if committed > 0 else f"of partition {number}, which had none"

    def _go_on_as_told(self, cluster: Cluster, topic: str, partition: int) -> int:
        """Set the offset that the refusal names."""
        log = self._fleet.refused(0)
        found = re.search(rf"--topic {re.escape(topic)}:{partition} --to-offset (\d+)", log)
        if found is None:
            self._fleet.note_broken(f"the states of {topic}/{partition} would be applied twice, and nothing is said")
            return 0
        patiently(lambda: cluster.set_offset(self._group, topic, partition, int(found[1])))
        return int(found[1])

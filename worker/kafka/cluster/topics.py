"""The topics of a worker, as the cluster describes them at its start: how many partitions, and what each takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from worker.kafka.client.membership import Membership


@dataclass(frozen=True, slots=True)
class Topics:
    """The cluster's answers. `partitions` and `max_bytes`, the limit of a batch of records, are by topic.

    `notes` are facts an operator may want to mend, though the worker runs. `has_members`: our group has some. The
    `compacted` topics are written to, as far as the broker tells. `replies` are topics that requests may name, and that
    serve nothing else. A topic that is `shut` gets no answer, for the reason given, so that its owner stops no worker.
    `can_administer`: the cluster answers administrative requests.
    """

    partitions: Mapping[str, int]
    max_bytes: Mapping[str, int]
    membership: Membership
    notes: tuple[str, ...] = ()
    changelog: str | None = None
    has_members: bool = False
    compacted: frozenset[str] = frozenset()
    replies: frozenset[str] = frozenset()
    shut: Mapping[str, str] = field(default_factory=dict)
    can_administer: bool = False

    @property
    def largest_message(self) -> int:
        """Bytes of the largest record that any topic we write to takes."""
        return max(self.max_bytes.values())

    @property
    def largest_batch(self) -> int:
        """Bytes of the largest batch that every topic we write to takes."""
        return min(self.max_bytes.values())

    def shutting(self, reasons: Mapping[str, str]) -> Topics:
        """The topics without these reply topics."""
        shut = {**reasons, **self.shut}
        limits = {topic: limit for topic, limit in self.max_bytes.items() if topic not in shut}
        return replace(self, max_bytes=limits, replies=self.replies - shut.keys(), shut=shut)

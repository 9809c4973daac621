"""Keeps the states of a clean stop for the next start, which then restores only later changes.

    drained ─▶ how far does the changelog go? ─▶ is that still ours? ─▶ leave the group ─▶ write

A process that stood still may have lost its partitions without knowing it, and another process may have written to
their changelogs. The group takes an offset only from a partition's owner. So a commit that it takes after the first
question proves that no other process was the owner until then. The states are written after others have the partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from worker.core.failures import Stop
from worker.core.records import Partition
from worker.loop.conduct import SHORTEST_WAIT, Parts
from worker.ports import Checkpointed

ASK_TIMEOUT = 2.0  # seconds for the changelog's ends, and again for the group; both take milliseconds if all is well


class Checkpoint:
    """Owns the order of a checkpoint's steps. `left` returns the seconds that they may still take."""

    def __init__(self, parts: Parts, states: Checkpointed) -> None:
        self._states = states
        self._source = parts.source
        self._ledger = parts.ledger
        self._events = parts.events
        self._clock = parts.clock

    def settle(self, left: Callable[[], float]) -> None:
        """Find out how far the states reach. Called when all is committed, before the group is left."""
        extents = self._states.ask_ends(min(ASK_TIMEOUT, left()))
        confirmed = self._confirmed(self._ledger.committed_offsets(extents), left)
        self._states.end({partition: extents[partition] for partition in confirmed})

    def write(self, left: Callable[[], float]) -> None:
        """Write the states for the next process. All is committed and the group left, so a failure does no harm."""
        began = self._clock()
        try:
            kept = self._states.keep(lambda: self._beat() < left())
        except Stop as stop:
            self._events.not_kept(str(stop))
            return
        if kept is None:
            self._events.not_kept("there was not the time; raise WORKER_DELIVERY__DRAIN_TIMEOUT_S")
        else:
            self._events.kept(kept, self._clock() - began)

    def _confirmed(self, offsets: Mapping[Partition, int], left: Callable[[], float]) -> Collection[Partition]:
        """The partitions whose committed offset the group takes once more. One without an offset has no new state."""
        confirmed: set[Partition] = set()
        waiting, until = set(offsets), self._clock() + ASK_TIMEOUT
        self._source.commit_results()
        if waiting:
            self._source.commit(offsets)
        with suppress(Stop):  # then they are not confirmed
            while waiting and self._clock() < until and left() > 0:
                self._source.poll(1, SHORTEST_WAIT)  # a record that comes is left to the next owner
                for result in self._source.commit_results():
                    confirmed |= result.committed.keys() & waiting
                    waiting -= result.committed.keys() | result.failed.keys()
        return confirmed

    def _beat(self) -> float:
        """Tell the watchdog that the loop still turns."""
        self._events.turned(self._clock(), self._ledger.records)
        return 0.0

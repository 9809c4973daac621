"""A clean stop leaves the states to the next start, which reads back only what came later.

    drained ─▶ how far does the changelog go? ─▶ is that still ours? ─▶ leave the group ─▶ write

Is it ours? A process that stood still may have lost its partitions without knowing it, and another one has written to
their changelogs. The group takes an offset from a partition's owner alone: a commit that it takes after the question
proves that no other process was the owner until then. The states are written when others have the partitions already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from worker.core.failures import Stop
from worker.core.records import Partition
from worker.loop.conduct import SHORTEST_WAIT, Parts
from worker.state.states import KeyStates

ASK_TIMEOUT = 2.0  # for the changelog's ends, and then for the group, seconds; milliseconds where they are well


class Checkpoint:
    """Owns the order of its steps. `left` are the seconds that they may take, and is asked often."""

    def __init__(self, parts: Parts, states: KeyStates) -> None:
        self._states = states
        self._source = parts.source
        self._ledger = parts.ledger
        self._events = parts.events
        self._clock = parts.clock

    def settle(self, left: Callable[[], float]) -> None:
        """Find out how far the states reach. All is committed, and the group not left yet."""
        extents = self._states.ask_ends(min(ASK_TIMEOUT, left()))
        confirmed = self._confirmed(self._ledger.committed_offsets(extents), left)
        self._states.end({partition: extents[partition] for partition in confirmed})

    def write(self, left: Callable[[], float]) -> None:
        """Leave them to the next process. The group is left, and all is committed: what fails here ends no worker."""
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
        """The partitions for which the group takes its offset once more. One without an offset has no new state."""
        confirmed: set[Partition] = set()
        waiting, until = set(offsets), self._clock() + ASK_TIMEOUT
        self._source.commit_results()
        if waiting:
            self._source.commit(offsets)
        with suppress(Stop):  # then they are not confirmed
            while waiting and self._clock() < until and left() > 0:
                self._source.poll(1, SHORTEST_WAIT)  # what it brings is the next owner's
                for result in self._source.commit_results():
                    confirmed |= result.committed.keys() & waiting
                    waiting -= result.committed.keys() | result.failed.keys()
        return confirmed

    def _beat(self) -> float:
        """The loop still turns, for the watchdog."""
        self._events.turned(self._clock(), self._ledger.records)
        return 0.0

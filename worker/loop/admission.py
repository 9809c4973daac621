"""Decides how many records are taken from the source, and when: back-pressure, and how long a poll may wait.

    source.poll ─▶ postponed while a record runs alone ─▶ `Decoding`

**Waiting.** A finished lane cannot wake a Kafka poll. So while a lane runs, the poll returns at once and the loop waits
on the lanes. While none runs, the loop waits in the poll for at most 100 ms, or until something falls due. The limit is
100 ms because Python runs signal handlers only between two polls. If nothing may be taken, the loop still polls every
100 ms, because rebalance callbacks run only in a poll (`core/batching/back_pressure.py`).

Owns pause and resume, and the postponed records.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from worker.core.records import Partition, Record
from worker.loop.conduct import POLL_SLICE, SHORTEST_WAIT, Parts
from worker.loop.decoding import Decoding
from worker.loop.dispatch import Dispatch
from worker.loop.quarantine import Quarantine

# The most records that wait for the end of an isolated run; then all fetching stops. The run's answer may take as long
# as a broker is away.
MOST_POSTPONED = 256
# The most bytes of their values: a record may have a mebibyte and more.
MOST_BYTES_POSTPONED = 16 * 1024 * 1024


class Admission:
    """Polls the source for as many records as there is room for. Owns pause and resume, and the postponed records."""

    def __init__(self, parts: Parts, decoding: Decoding, quarantine: Quarantine, dispatch: Dispatch) -> None:
        self._states = parts.states
        self._source = parts.source
        self._intake = parts.intake
        self._decoding = decoding
        self._quarantine = quarantine
        self._dispatch = dispatch
        self._delivery = parts.delivery
        self._events = parts.events
        self._postponed: list[Record] = []
        self._next_glance = 0.0
        self._is_paused = False
        self.is_behind = False  # the last poll brought as many as asked for, so more are waiting

    def poll(self, now: float) -> Sequence[Record]:
        """The records that came, as many as there is room for. The caller gives them to `take`."""
        self._decoding.look_at_held(now)
        room = 0 if self._dispatch.has_backlog or self._quarantine.is_exclusive else self._intake.room()
        if postponed := self._resumed():
            records = postponed
        elif room:
            records = self._source.poll(room, self._patience(now))
            self.is_behind = len(records) == room
        else:
            records = self._glance(now)
        if earlier := self._resumed():  # a rebalance in the poll broke the isolated run off
            records = [*earlier, *records]
        return records

    def take(self, records: Sequence[Record], now: float) -> None:
        """Take these records, so that each is owed an answer; while a record runs alone, postpone them instead."""
        if self._quarantine.is_exclusive:
            self._postponed += records
            return
        self._decoding.take(records, now)
        self._events.taken(len(records))

    def pause_or_resume(self) -> None:
        """Stop fetching when too much is taken or postponed; begin again when enough of it is gone."""
        should_pause = self._intake.should_pause() or self._has_postponed_enough
        if should_pause == self._is_paused:
            return
        self._is_paused = should_pause
        if should_pause:
            self._source.pause()
        else:
            self._source.resume()
        self._events.paused(is_paused=should_pause)

    def stop(self) -> None:
        """Take nothing more."""
        self.is_behind = False
        self._source.pause()
        self._decoding.stop()

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the waiting records of these partitions."""
        self._decoding.forget(partitions)
        self._postponed = [record for record in self._postponed if record.partition not in partitions]

    @property
    def _has_postponed_enough(self) -> bool:
        if not self._postponed:  # as in nearly every turn
            return False
        size = sum(len(record.value or b"") for record in self._postponed)
        return len(self._postponed) >= MOST_POSTPONED or size >= MOST_BYTES_POSTPONED

    def _resumed(self) -> Sequence[Record]:
        """The postponed records, in their order, if they may be taken now."""
        if not self._postponed or self._quarantine.is_exclusive:
            return ()
        postponed, self._postponed = self._postponed, []
        return postponed

    def _glance(self, now: float) -> Sequence[Record]:
        """Poll only to let Kafka's callbacks run. A record that comes too is taken from the reserve."""
        if now < self._next_glance and not self._quarantine.awaits_kafka:
            return ()
        self._next_glance = now + POLL_SLICE
        records = self._source.poll(1, 0.0)
        if self._intake.is_full:
            self._intake.took_from_reserve(len(records))
        return records

    def _patience(self, now: float) -> float:
        """How long the poll may wait: not at all while a lane runs, else until something falls due."""
        if self._dispatch.is_running:
            return 0.0
        if self._quarantine.current is not None:
            return SHORTEST_WAIT
        if self._states is not None and (wait := self._states.wait) is not None:
            return wait
        dues = [due for due in (self._dispatch.next_due, self._delivery.next_due) if due is not None]
        if not dues:
            return POLL_SLICE
        wait = min(dues) - now
        return 0.0 if wait <= 0 else min(POLL_SLICE, max(SHORTEST_WAIT, wait))

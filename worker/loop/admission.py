"""Decides how many records are taken from the source, and when; reads them, and hands them on.

    source.poll ─▶ codec.read ─▶ ledger.track ─▶ still in time? ─▶ stage.add
                     │ └───────── refusals ───────────┴─────▶ Outcomes
                     └ a schema is not here ─▶ HeldBack ─▶ codec.read, later

**Waiting.** A finished lane cannot wake a Kafka poll. So while a lane runs, the poll returns at once and the loop waits
on the lanes. While none runs, the loop waits in the poll for at most 100 ms, or until something falls due. The limit is
100 ms because Python runs signal handlers only between two polls. If nothing may be taken, the loop still polls every
100 ms, because rebalance callbacks run only in a poll (`core/batching/back_pressure.py`).

Owns pause and resume. The first rejections of a new group wait (`core/rejections.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from worker.core.chunk import Chunk, Reading
from worker.core.ordering.ledger import Place, Places
from worker.core.reading_together import read_together
from worker.core.records import Partition, Record, Rejection
from worker.loop.conduct import POLL_SLICE, SHORTEST_WAIT, Parts
from worker.loop.dispatch import Dispatch
from worker.loop.held_back import HeldBack
from worker.loop.outcomes import Outcomes

_PARTITION = itemgetter(0)


class Admission:
    """Takes as many records as there is room for: from then on each is owed an answer."""

    def __init__(self, parts: Parts, outcomes: Outcomes, dispatch: Dispatch) -> None:
        self._states = parts.states
        self._source = parts.source
        self._codec = parts.codec
        self._ledger = parts.ledger
        self._intake = parts.intake
        self._stage = parts.stage
        self._punctuality = parts.punctuality
        self._first = parts.first
        self._outcomes = outcomes
        self._dispatch = dispatch
        self._polled_beside_runs = parts.conduct.polled_beside_runs
        self._delivery = parts.delivery
        self._events = parts.events
        self._held = HeldBack(parts.source, parts.schemas, parts.events)
        self._next_glance = 0.0
        self._is_paused = False
        self.is_behind = False  # the last poll brought as many as asked for, so more are waiting

    def poll(self, now: float) -> Sequence[Record]:
        """The records that came, as many as there is room for. The caller gives them to `take`."""
        if due := self._first.due(now):
            self._outcomes.refuse(due)
        room = 0 if self._dispatch.has_backlog else self._intake.room()
        if self._dispatch.is_busy:
            room = min(room, self._polled_beside_runs)
        if not room:
            return self._glance(now)
        records = self._source.poll(room, self._patience(now))
        self.is_behind = len(records) == room
        return [*self._held.ready(now), *records] if self._held else records

    def take(self, records: Sequence[Record], now: float) -> None:
        """Take these records, so that each is owed an answer; those that wait for a schema are taken later."""
        if self._held:
            records = self._held.sift(records)
        self._states.take_back(records)
        rows, size = self._ledger.rows, self._ledger.size
        by_partition = _by_partition(records)
        readings = read_together(self._codec.read, by_partition)
        if not self._first.is_over:
            self._outcomes.refuse(self._first.read(has_request=any(reading.chunks for reading in readings)))
        taken = sum([self._hand_on(*each, now) for each in zip(by_partition, readings, strict=True)])
        if taken:
            self._intake.took(taken, self._ledger.rows - rows, self._ledger.size - size)
            self._events.taken(taken)

    def pause_or_resume(self) -> None:
        """Stop fetching when too much is taken; begin again when enough of it is gone."""
        should_pause = self._intake.should_pause()
        if should_pause == self._is_paused:
            return
        self._is_paused = should_pause
        if should_pause:
            self._source.pause()
        else:
            self._source.resume()
        self._events.paused(is_paused=should_pause)

    def stop(self) -> None:
        """Take nothing more, and answer the held rejections."""
        self.is_behind = False
        self._source.pause()
        self._outcomes.refuse(self._first.release())

    def taken_up_to(self, positions: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """The positions of partitions of which every record that came was taken."""
        return {partition: at for partition, at in positions.items() if partition not in self._held}

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the waiting records of these partitions."""
        self._held.forget(partitions)
        self._stage.forget(partitions)
        self._first.forget(partitions)

    # Records that were read go on

    def _hand_on(self, records: Sequence[Record], reading: Reading, now: float) -> int:
        """Take records of one partition: refuse the wrong ones, and hand on those that can be answered in time.

        Returns how many were taken: those before one that must wait for its schema, and all if none must.
        """
        chunks, rejections, waiting = reading
        if waiting is not None:
            self._held.hold(records[waiting.at :], waiting.schema, now)
            records = records[: waiting.at]
            if not records:
                return 0
        places = self._ledger.track(records, *_weights(records, chunks, rejections), now)
        if rejections:
            self._refuse(places, rejections, now)
        for chunk in chunks:
            chunk.places = places
            if chunk.timeouts is None:
                self._stage.add(chunk, now)
            else:
                self._add_in_time(chunk, now)
        return len(records)

    def _refuse(self, places: Places, rejections: Sequence[tuple[int, Rejection]], now: float) -> None:
        if silent := sum([rejection.is_silent for _, rejection in rejections]):
            self._events.unanswered(silent)
        refused = [(Place(places, at), rejection) for at, rejection in rejections]
        self._outcomes.refuse([each for each in refused if not self._first.holds(*each, now)])

    def _add_in_time(self, chunk: Chunk, now: float) -> None:
        for kind, part in self._stage.by_batch(chunk):
            in_time, late = self._punctuality.sifted(part, kind, self._stage.backlog, now)
            # No stage has these records, so none hears of their outcomes.
            self._outcomes.refuse([(one.chunk.place(one.at), one.rejection) for one in late])
            if in_time is not None:
                self._stage.add(in_time, now)

    # Waiting

    def _glance(self, now: float) -> Sequence[Record]:
        """Poll only to let Kafka's callbacks run. A record that comes too is taken from the reserve."""
        if now < self._next_glance:
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
        if (wait := self._states.wait) is not None:
            return wait
        longest = self._held.slice if self._held else POLL_SLICE
        dues = [due for due in (self._dispatch.next_due, self._delivery.next_due) if due is not None]
        if not dues:
            return longest
        wait = min(dues) - now
        return 0.0 if wait <= 0 else min(longest, max(SHORTEST_WAIT, wait))


def _by_partition(records: Sequence[Record]) -> list[list[Record]]:
    """The records of each partition, in order."""
    found: dict[Partition, list[Record]] = {}
    for partition, neighbours in groupby(records, _PARTITION):
        found.setdefault(partition, []).extend(neighbours)
    return list(found.values())


def _weights(
    records: Sequence[Record], chunks: Sequence[Chunk], rejections: Sequence[tuple[int, Rejection]]
) -> tuple[list[int], list[int]]:
    """The rows and bytes of each record; a rejected one has no rows."""
    if len(chunks) == 1 and not rejections:  # nearly always
        return list(chunks[0].rows), list(chunks[0].sizes)
    rows, sizes = [0] * len(records), [0] * len(records)
    for chunk in chunks:
        for at, count, size in zip(chunk.at, chunk.rows, chunk.sizes, strict=True):
            rows[at], sizes[at] = count, size
    for at, rejection in rejections:
        sizes[at] = len(rejection.record.value or b"")
    return rows, sizes

"""Turns records into requests: decodes them, gives them a place and a deadline, and hands them on to the batcher.

    records ─▶ codec.decode_all ─▶ still in time? ─▶ ledger.track ─▶ stage.add
       │               └───── refusals ─────┴──────▶ Outcomes
       └─ records of suspects ─▶ Quarantine

`Admission` calls it, and decides how many and when. The first rejections of a new group wait (`core/rejections.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from worker.core.records import Partition, Place, Record, Rejection, Request
from worker.core.runs import Run
from worker.loop.conduct import Parts
from worker.loop.outcomes import Outcomes
from worker.loop.quarantine import Quarantine


class Decoding:
    """Takes records: from then on each is owed an answer."""

    def __init__(self, parts: Parts, outcomes: Outcomes, quarantine: Quarantine) -> None:
        self._first_rejections = parts.first
        self._quarantine = quarantine
        self._codec = parts.codec
        self._intake = parts.intake
        self._ledger = parts.ledger
        self._stage = parts.by_key or parts.batcher
        self._punctuality = parts.punctuality
        self._outcomes = outcomes
        self._states = parts.states

    def take(self, records: Sequence[Record], now: float) -> None:
        """Decode these records, and hand on the requests that can be answered in time."""
        track, add, quarantine = self._ledger.track, self._stage.add, self._quarantine
        if self._states is not None and self._states.is_rewound:
            self._states.take_back(records)
        rows, size = self._ledger.rows, self._ledger.size
        others = quarantine.set_aside(records, now) if quarantine.has_suspects else records
        decoded = self._codec.decode_all(others)
        if self._first_rejections is not None and self._first_rejections.is_over(decoded):
            self._let_go()
        for request in decoded:
            record = request.record
            if isinstance(request, Rejection):
                place = track(record, 0, len(record.value or b""), now)
                if self._first_rejections is None or not self._first_rejections.holds(place, request, now):
                    self._outcomes.refuse([(place, request)])
            elif isinstance(request, Run):
                self._take_run(request, now)
            elif request.timeout is None or self._keep_or_refuse(request, now):
                request.place = track(record, request.rows, request.size, now)
                add(request, now)
        self._intake.took(len(records), self._ledger.rows - rows, self._ledger.size - size)

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the waiting requests of these partitions."""
        self._stage.forget(partitions)
        if self._first_rejections is not None:
            self._first_rejections.forget(partitions)

    def look_at_held(self, now: float) -> None:
        """Answer the rejections that were held for long enough."""
        if self._first_rejections is not None:
            self._outcomes.refuse(self._first_rejections.due(now))

    def stop(self) -> None:
        """Answer the held rejections, because nothing more is taken."""
        if self._first_rejections is not None:
            self._let_go()

    def _let_go(self) -> None:
        """Answer the held rejections, and hold none from now on."""
        assert self._first_rejections is not None
        first, self._first_rejections = self._first_rejections, None
        self._outcomes.refuse(first.release())

    def _take_run(self, run: Run, now: float) -> None:
        """Take the run in as few parts as possible, each within one batch."""
        start = 0
        for stop in self._stage.stops(run):
            if run.timeouts:
                self._take_in_time(run.part(start, stop), now)
            elif stop - start > 1:
                self._add_run(run.part(start, stop), now)
            else:
                self._add_single(run.single(start), now)
            start = stop

    def _take_in_time(self, run: Run, now: float) -> None:
        """Take the records that can be answered in time, and refuse the others."""
        for part in self._punctuality.sifted(run, self._stage.kind(run), self._stage.backlog, now):
            if not isinstance(part, Run):
                self._outcomes.refuse([(self._track_refused(request, now), why) for request, why in part])
            elif len(part.records) > 1:
                self._add_run(part, now)
            else:
                single = part.single(0)
                single.deadline = part.deadline
                self._add_single(single, now)

    def _add_run(self, run: Run, now: float) -> None:
        run.place = self._ledger.track(run.records[-1], run.rows, run.size, now, len(run.records))
        self._stage.add(run, now)

    def _add_single(self, request: Request, now: float) -> None:
        request.place = self._ledger.track(request.record, request.rows, request.size, now)
        self._stage.add(request, now)

    def _keep_or_refuse(self, request: Request, now: float) -> bool:
        """True if the request can be answered in time; otherwise it is taken and refused at once."""
        refusal = self._punctuality.refusal(request, self._stage.kind(request), self._stage.backlog, now)
        if refusal is not None:
            self._outcomes.refuse([(self._track_refused(request, now), refusal)])
        return refusal is None

    def _track_refused(self, request: Request, now: float) -> Place:
        return self._ledger.track(request.record, 0, request.size, now)

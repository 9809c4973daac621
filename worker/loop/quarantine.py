"""Runs suspect records one at a time, so that it is known which one ends the process.

The records of suspect partitions (`suspects.py`) are set aside, undecoded, and run one at a time. Meanwhile nothing
else is in the lanes, and nothing else is decoded:

    earlier records settled ─▶ lanes empty ─▶ the group notes it ─▶ decode, run ─▶ answer committed ─▶ the next

A process that dies meanwhile leaves that note behind. Its successor finds the record marked as poison, and answers it
with an error, without decoding or running it. If a run is broken off for another reason, its note is withdrawn. With
exactly once the note of a finished run is withdrawn too, before the transaction with its answer ends. With at least
once the commit of the answer clears the note. If the partition leaves before the group has taken that commit, the
worker asks the group, and commits again.

Where keys have states, records after a suspect's records are set aside too, until these are done. Otherwise they would
run on the states before them. Then they go on like all others.

Takes records from `Admission` and gives isolated runs to `Dispatch`. Owns the suspects and their notes with the group.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from worker.core.chunk import Chunk
from worker.core.failures import Code
from worker.core.ordering.ledger import Place
from worker.core.records import Partition, Record
from worker.loop.conduct import Parts
from worker.loop.dispatch import Dispatch
from worker.loop.outcomes import Outcomes
from worker.loop.suspects import IsolatedRun

POISONOUS = "this request ended the worker's process while it ran alone; it is not run again"

WITHDRAW_TIMEOUT = 1.0  # seconds for the group to take the withdrawal of a note, or the commit that clears it


class Quarantine:
    """Runs the records of suspect partitions alone."""

    def __init__(self, parts: Parts, outcomes: Outcomes, dispatch: Dispatch) -> None:
        self._states = parts.states
        self._stage = parts.stage
        self._suspects = parts.suspects
        self._notes = parts.source
        self._codec = parts.codec
        self._ledger = parts.ledger
        self._outcomes = outcomes
        self._dispatch = dispatch
        self._punctuality = parts.punctuality

    @property
    def has_suspects(self) -> bool:
        """True if records must be looked at before they are decoded."""
        return bool(self._suspects)

    @property
    def current(self) -> IsolatedRun | None:
        """The record that runs alone now, or next."""
        runs = self._suspects.runs
        return runs[0] if runs else None

    @property
    def is_exclusive(self) -> bool:
        """True if a process that dies now would leave the current record marked as poison."""
        runs = self._suspects.runs
        return bool(runs) and runs[0].is_called

    @property
    def awaits_kafka(self) -> bool:
        """True if the isolated run waits for its note, or for the commit of its answer."""
        return self.is_exclusive and not self._dispatch.in_flight and self._suspects.pieces.next_due is None

    def set_aside(self, records: Sequence[Record], now: float) -> Sequence[Record]:
        """Keep records of suspects undecoded, and others that must not overtake them. Returns the rest."""
        others: list[Record] = []
        for record in records:
            suspect = self._suspects.claims(record)
            if suspect is None and not self._must_wait(record):
                others.append(record)
                continue
            place = Place(self._ledger.track([record], [1], [len(record.value or b"")], now), 0)
            if suspect is not None and record.offset == suspect.poison:
                self._outcomes.refuse([(place, self._codec.refuse(record, Code.INTERNAL, POISONOUS))])
            elif self._suspects.add(record, place, is_behind=suspect is None):
                self._notes.withhold(record.partition)
        return others

    def advance(self, run: IsolatedRun, now: float) -> bool:
        """Take the next step of the current run. Returns True if no other batch may run now."""
        if run.is_behind:
            self._take_up(run, now)
            return False
        if not self._ledger.is_next(run.place) and not run.is_begun:
            return False  # until the records before it are settled, others may run
        if self._dispatch.in_flight:
            return True
        # A store may be away for long, so the state comes before the note.
        if not run.is_begun and self._states.is_here(run.record) and self._have_noted(run):
            run.is_begun = True
            self._begin(run, now)
        if (group := self._suspects.pieces.drain()) is not None:
            self._dispatch.start(group, now)
        elif self._ledger.is_done(run.place):
            self._end(run)
            return False
        return True

    def forget(self, partitions: Collection[Partition]) -> IsolatedRun | None:
        """Drop partitions that leave or are read again. Returns the run it breaks off, to `leave` or to `withdraw`."""
        run = self.current
        self._suspects.forget(partitions)
        return run if run is not None and run.record.partition in partitions else None

    def withdraw(self, run: IsolatedRun) -> None:
        """Withdraw the note of a record that is read again, and did not end the process.

        Nothing is done if the group was not asked to note the record, or if it is settled or may be: to withdraw is to
        commit the record's own offset, and that would undo a later commit.
        """
        if self._has_note(run):
            self._notes.withdraw_note(run.record.partition, run.record.offset)

    def leave(self, run: IsolatedRun) -> None:
        """Clear the note of a run whose partition leaves or whose worker ends. Waits a limited time for the group."""
        if not run.is_called:
            return
        partition, offset = run.record.partition, run.record.offset
        if self._outcomes.is_unsettled(run.place):
            self._notes.clear_note(partition, offset, WITHDRAW_TIMEOUT)
        elif self._ledger.is_settled(run.place):
            self._notes.clear_note(partition, offset + 1, WITHDRAW_TIMEOUT)

    def _must_wait(self, record: Record) -> bool:
        """True if a record of its partition must run alone first, because that one may have this one's key."""
        return self._states.keeps_order and self._suspects.has_waiting(record.partition)

    def _has_note(self, run: IsolatedRun) -> bool:
        return run.is_called and self._outcomes.is_unsettled(run.place)

    def _have_noted(self, run: IsolatedRun) -> bool:
        """Ask the group to note that this record runs next. Returns True once it has; no other commit may follow it."""
        run.is_called = True
        self._ledger.committed({run.record.partition: run.record.offset})
        return self._notes.note_isolated_run(run.record.partition, run.record.offset)

    def _begin(self, run: IsolatedRun, now: float) -> None:
        if (chunk := self._read(run, now)) is not None:
            self._suspects.pieces.add(chunk, now)

    def _take_up(self, run: IsolatedRun, now: float) -> None:
        """Hand a record on like any other, because no record before it has to run alone any more."""
        if (chunk := self._read(run, now)) is not None:
            self._stage.add(chunk, now)
        self._end(run)

    def _read(self, run: IsolatedRun, now: float) -> Chunk | None:
        """The run's record as a chunk; None if it is refused."""
        chunks, rejections = self._codec.read([run.record])
        if rejections:
            self._outcomes.refuse([(run.place, rejection) for _, rejection in rejections])
            return None
        (chunk,) = chunks
        chunk.places = run.place.places
        if chunk.timeouts is not None:
            self._punctuality.give_deadlines(chunk, now)
        return chunk

    def _end(self, run: IsolatedRun) -> None:
        if self._suspects.end():
            self._notes.release(run.record.partition)

"""The steps of a turn: take in, hand out, answer, record; and the steps of a rewind and a drain.

    source.poll → codec.decode → ledger.track → batcher.add/due → lanes.submit ┈(thread)┈ lanes.finished
      → ledger.answer → codec.encode → sink.send ┈(delivery report)┈ ledger.settle → commit

The parts decide. `Worker` decides when a step is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from worker.core.records import Partition
from worker.loop.admission import Admission
from worker.loop.conduct import Parts
from worker.loop.dispatch import Dispatch
from worker.loop.outcomes import Outcomes
from worker.loop.quarantine import Quarantine
from worker.loop.suspects import IsolatedRun

LOOK_AGAIN_AFTER = 1.0  # seconds between two questions to the source how far it has come
REPORT_WAIT = 0.01  # seconds of one wait for delivery reports, while only they can free room


class Steps:
    """Owns the order of the calls within one step."""

    def __init__(
        self, parts: Parts, admission: Admission, dispatch: Dispatch, outcomes: Outcomes, quarantine: Quarantine
    ) -> None:
        self._offsets = parts.source
        self._admission = admission
        self._dispatch = dispatch
        self._outcomes = outcomes
        self._quarantine = quarantine
        self._ledger = parts.ledger
        self._intake = parts.intake
        self._batcher = parts.batcher
        self._rejections = parts.rejections
        self._delivery = parts.delivery
        self._events = parts.events
        self._clock = parts.clock
        self._states = parts.states
        self._next_look = 0.0
        self._is_draining = False
        self._is_kept_free = False  # the lanes are kept free for the record that runs alone

    def take_in(self) -> bool:
        """Take in the records that arrived, and some of the states. Returns True if there were any."""
        records = self._admission.poll(self._clock())
        if records:
            self._admission.take(records, self._clock())
        has_news = (self._states is not None and self._states.restore_some()) or bool(records)
        now = self._clock()
        self._commit_past_gaps(now)
        self._admission.pause_or_resume()
        self._dispatch.last_full_poll_at = now if self._admission.is_behind else None
        return has_news

    def hand_out(self, now: float) -> None:
        """Give the lanes the groups that are due, or the record that runs alone."""
        self._is_kept_free = False
        if (run := self._quarantine.current) is not None:
            self._is_kept_free = self._quarantine.advance(run, now)
            self._pace()
        if not self._is_kept_free:
            self._dispatch.hand_out(now)

    def answer_finished(self, timeout: float) -> None:
        """Conclude the finished runs, waiting at most `timeout` seconds for the first."""
        finished = self._dispatch.finished(timeout)
        if finished:
            now = self._clock()
            self._dispatch.collect(finished, now)
            if self._quarantine.current is None:  # otherwise the isolated run's next step may depend on these answers
                self.hand_out(now)  # before the answers are written, so that no lane waits for that
            for one in finished:
                if halves := self._outcomes.conclude(one, now):
                    self._dispatch.resubmit(halves, self._clock())
        self._dispatch.probe_if_wanted()

    def record_progress(self) -> None:
        """Settle and commit acknowledged answers, or read records again whose answers were taken back."""
        if self._dispatch.is_idle and not self._admission.is_behind:
            self._delivery.push()
        now = self._clock()
        astray = self._delivery.make_progress(now, REPORT_WAIT if self._only_kafka_helps(now) else 0.0)
        self._rejections.check()  # with exactly once, answers that waited for a transaction are written only now
        if astray:
            self._rewind(astray)
        self._batcher.look_back(now)
        self._events.turned(now, self._ledger.records)

    def forget(self, partitions: Sequence[Partition]) -> IsolatedRun | None:
        """Drop the waiting records of these partitions. Returns the isolated run that this breaks off."""
        self._admission.forget(partitions)
        interrupted = self._quarantine.forget(partitions)
        self._pace()
        return interrupted

    def drain(self) -> None:
        """Begin a drain: nothing more is taken, no batch waits for company, and commits are urgent."""
        self._is_draining = True
        self._admission.stop()
        self._dispatch.drain()
        self._pace()

    def _commit_past_gaps(self, now: float) -> None:
        if now >= self._next_look and not self._quarantine.is_exclusive:
            self._next_look = now + LOOK_AGAIN_AFTER
            self._outcomes.commit_past_gaps(self._offsets.positions(), now)

    def _only_kafka_helps(self, now: float) -> bool:
        """True if nothing can go on before Kafka has acknowledged something.

        With state a request may be due that waited for an earlier request of its key, unless the lanes are kept free.
        """
        if self._quarantine.awaits_kafka:
            return True
        if not self._intake.is_full or self._dispatch.in_flight:
            return False
        due = self._dispatch.next_due
        return self._is_kept_free or due is None or due > now

    def _rewind(self, partitions: Sequence[Partition]) -> None:
        """Read these partitions again from their committed offsets. A run that is still under way finds no line."""
        if (interrupted := self.forget(partitions)) is not None:
            self._quarantine.withdraw(interrupted)
        self._rejections.take_back()
        if self._states is not None:
            self._states.rewind(partitions)
        self._offsets.rewind(partitions)
        self._events.rewound(partitions)

    def _pace(self) -> None:
        """Make commits urgent while a drain or an isolated run waits for them."""
        self._delivery.commit_promptly(is_urgent=self._is_draining or self._quarantine.current is not None)

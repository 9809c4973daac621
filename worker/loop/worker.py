"""The loop: takes the steps of a turn again and again, while partitions come and go, until all is drained.

    source.poll → codec.read → ledger.track → batcher.add/due → lanes.submit ┈(thread)┈ lanes.finished
      → codec.write → ledger.answer → sink.send ┈(delivery report)┈ ledger.settle → commit

Inference overlaps all of them, because a lane runs its batch outside the GIL while the loop takes records, stacks the
next batch and produces the last answers. A batch that takes less time than the way to a lane and back runs on this
thread, in `lanes.submit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from worker.core.failures import DeadlineMissed
from worker.core.records import Partition
from worker.loop.admission import Admission
from worker.loop.checkpoint import Checkpoint
from worker.loop.conduct import BACKLOG_SLICE, LANE_SLICE, SHORTEST_WAIT, Parts
from worker.loop.dispatch import Dispatch
from worker.loop.outcomes import Outcomes

LOOK_AGAIN_AFTER = 1.0  # seconds between two questions to the source how far it has come
REPORT_WAIT = 0.01  # seconds of one wait for delivery reports, while only they can free room
LEAVE_AFTER = 0.5  # the part of a drain's time after which requests that no lane has begun are left to the next owner


class Worker:
    """Owns the order of the steps, and with its thread the consumer and the producer."""

    def __init__(self, parts: Parts) -> None:
        """A clean stop keeps the states for the next start, if there is a place for them."""
        self._source = parts.source
        self._outcomes = Outcomes(parts)
        self._dispatch = Dispatch(parts, self._outcomes)
        self._admission = Admission(parts, self._outcomes, self._dispatch)
        self._checkpoint = None if (kept := parts.states.kept) is None else Checkpoint(parts, kept)
        self._ledger = parts.ledger
        self._intake = parts.intake
        self._batcher = parts.batcher
        self._rejections = parts.rejections
        self._delivery = parts.delivery
        self._events = parts.events
        self._signals = parts.signals
        self._conduct = parts.conduct
        self._clock = parts.clock
        self._states = parts.states
        self._next_look = 0.0
        self._drain_deadline = inf
        self._is_over = False
        self._left = 0  # records that a drain left to their next owner

    def run(self) -> int:
        """Serve until told to stop, then drain and leave the group. Raises `Stop` when it cannot go on.

        Returns how many of the records taken were left to their next owner.
        """
        try:
            if not self._signals.stop_asked:  # if it came during the warm-up, a rebalance is not worth it
                self._source.subscribe(self)
            while not self._signals.stop_asked:
                self.turn()
            self._drain()
            if self._checkpoint is not None:
                self._checkpoint.settle(self._time_left)
        finally:
            self._is_over = True
            self._source.close()
        if self._checkpoint is not None:
            self._checkpoint.write(self._time_left)
        return self._left

    def leave(self) -> None:
        """Leave the group from another thread, because the loop's thread hangs and the process is about to end."""
        self._source.leave()

    def turn(self) -> None:
        """Take records in, hand groups out, answer finished runs, record the progress."""
        has_news = self._take_in()
        self._dispatch.hand_out(self._clock())
        self._answer_finished(0.0 if has_news else self._lane_slice)
        self._record_progress()

    @property
    def _lane_slice(self) -> float:
        """How long to wait for a lane before the topics are polled again; a lane that finishes ends the wait."""
        return BACKLOG_SLICE if self._dispatch.has_backlog and self._states.wait is None else LANE_SLICE

    # The steps of a turn

    def _take_in(self) -> bool:
        """Take in the records that arrived, and some of the states. Returns True if there were any."""
        records = self._admission.poll(self._clock())
        if records:
            self._admission.take(records, self._clock())
        has_news = self._states.restore_some() or bool(records)
        now = self._clock()
        self._commit_past_gaps(now)
        self._admission.pause_or_resume()
        self._dispatch.last_full_poll_at = now if self._admission.is_behind else None
        return has_news

    def _answer_finished(self, timeout: float) -> None:
        """Conclude the finished runs, waiting at most `timeout` seconds for the first."""
        if finished := self._dispatch.finished(timeout):
            now = self._clock()
            self._dispatch.hand_out(now)  # before the answers are written, so that no lane waits for that
            for one in finished:
                if halves := self._outcomes.conclude(one, now):
                    self._dispatch.resubmit(halves, self._clock())
        self._dispatch.probe_if_wanted()

    def _record_progress(self) -> None:
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

    def _commit_past_gaps(self, now: float) -> None:
        if now >= self._next_look:
            self._next_look = now + LOOK_AGAIN_AFTER
            self._outcomes.commit_past_gaps(self._admission.taken_up_to(self._source.positions()), now)

    def _only_kafka_helps(self, now: float) -> bool:
        """True if nothing can go on before Kafka has acknowledged something.

        With state a record may be due that waited for an earlier one of its key.
        """
        if not self._intake.is_full or self._dispatch.in_flight:
            return False
        due = self._dispatch.next_due
        return due is None or due > now

    def _rewind(self, partitions: Sequence[Partition]) -> None:
        """Read these partitions again from their committed offsets. A run that is still under way finds no line."""
        self._admission.forget(partitions)
        self._rejections.take_back()
        self._states.rewind(partitions)
        self._source.rewind(partitions)
        self._events.rewound(partitions)

    # Partitions come and go

    def assigned(self, partitions: Sequence[Partition]) -> None:
        self._states.assigned(partitions)
        self._events.assigned(partitions)

    def is_in_doubt(self, partition: Partition) -> bool:
        """True if an earlier assignment's offset may still be committed, or the keys' states are not restored yet."""
        return self._states.is_restoring(partition) or self._delivery.is_in_doubt(partition)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Called before the partitions move. The only callback that acts: it commits the batches that are running.

        So steps of a turn run inside the poll of another turn. They cannot wait until that poll returns: the partitions
        have moved then, and a commit for them is refused. So a turn must have nothing half done when it polls.

        Waiting requests are dropped first, because their next owner reads them again. Then the running batches are
        finished, then delivery reports are served, and the commit is the last call.
        """
        if not self._is_over:
            self._let_go(partitions, self._clock() + self._conduct.revoke_timeout)
            return
        self._delivery.lost(partitions)
        self._states.forget(partitions)

    def _let_go(self, partitions: Sequence[Partition], deadline: float) -> None:
        began = self._clock()
        self._admission.forget(partitions)
        while self._dispatch.holds(partitions) and self._clock() < min(deadline, self._stop_by()):
            self._answer_finished(LANE_SLICE)
            self._record_progress()
        unsettled = self._delivery.revoke(partitions, min(deadline, self._stop_by()))
        self._states.forget(partitions)
        self._events.revoked(partitions, self._clock() - began, unsettled)
        self._count_left(unsettled)

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Forget partitions that have moved already, and commit nothing. A batch that still runs finds no line."""
        self._admission.forget(partitions)
        unsettled = self._delivery.lost(partitions)
        self._states.forget(partitions)
        self._events.lost(partitions, unsettled)
        self._count_left(unsettled)

    def _count_left(self, unsettled: int) -> None:
        """Count the records that a drain leaves; before a drain they leave with a rebalance."""
        if self._signals.stop_asked:
            self._left += unsettled

    # The end

    def _drain(self) -> None:
        """Finish and commit all that is held. Raises `DeadlineMissed`, having committed nothing unsettled.

        When `LEAVE_AFTER` of the time is gone, requests that no lane has begun are left to their next owner. Otherwise
        many small batches of a slow model would take all the time, and the drain would end in an error without a cause.
        Partitions are let go after the group has taken the last commit. Unlike in a rebalance, polls bring that result.
        """
        leave_at = self._stop_by() - (1 - LEAVE_AFTER) * self._conduct.drain_timeout
        is_leaving = False
        self._admission.stop()
        self._dispatch.drain()
        self._delivery.commit_promptly()
        while self._ledger.records or not self._delivery.is_idle:
            if self._clock() > self._stop_by():
                raise DeadlineMissed(
                    f"stopped before all was settled: {self._ledger.records} records taken are unanswered or "
                    "uncommitted and will be answered again"
                )
            if self._clock() > leave_at and self._dispatch.next_due is not None:
                self._admission.forget(list(self._ledger.oldest_by_partition()))
                is_leaving = True
            if is_leaving and self._is_drained:
                self._let_go(list(self._ledger.oldest_by_partition()), self._stop_by())
            # This poll is for the callbacks. A record that still comes is left to its next owner.
            self._source.poll(1, 0.0 if self._dispatch.in_flight else SHORTEST_WAIT)
            self._states.restore_some()
            self._dispatch.hand_out(self._clock())
            self._answer_finished(LANE_SLICE)
            self._record_progress()

    def _stop_by(self) -> float:
        """When the drain must be over: infinity before a stop is asked for, at once when it is asked for again.

        Its time begins when the request is first seen, even in the middle of a revoke, because the watchdog counts so.
        """
        if self._signals.hurry_asked:
            return -inf
        if self._signals.stop_asked:
            self._drain_deadline = min(self._drain_deadline, self._clock() + self._conduct.drain_timeout)
        return self._drain_deadline

    def _time_left(self) -> float:
        return self._stop_by() - self._clock()

    @property
    def _is_drained(self) -> bool:
        """True if all that ran is answered, and committed as far as possible."""
        return not (self._dispatch.is_running or self._ledger.awaits_delivery() or self._ledger.committable())

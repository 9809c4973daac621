"""The loop's thread: decides when each step is taken, while partitions come and go, until all is drained.

`Worker.turn()` takes the steps of `steps.py` once. Inference overlaps all of them, because a lane runs its batch
outside the GIL while the loop takes records, stacks the next batch and produces the last answers. A batch that takes
less time than the way to a lane and back runs on this thread, in `lanes.submit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from worker.core.failures import DeadlineMissed, Stop
from worker.core.records import Partition, Suspect
from worker.loop.checkpoint import Checkpoint
from worker.loop.conduct import BACKLOG_SLICE, LANE_SLICE, SHORTEST_WAIT, Parts
from worker.loop.dispatch import Dispatch
from worker.loop.quarantine import Quarantine
from worker.loop.steps import Steps

LEAVE_AFTER = 0.5  # the part of a drain's time after which requests that no lane has begun are left to the next owner


class Worker:
    """Owns the order of the steps, and with its thread the consumer and the producer."""

    def __init__(
        self, parts: Parts, steps: Steps, dispatch: Dispatch, quarantine: Quarantine, checkpoint: Checkpoint | None
    ) -> None:
        self._source = parts.source
        self._steps = steps
        self._dispatch = dispatch
        self._quarantine = quarantine
        self._ledger = parts.ledger
        self._suspects = parts.suspects
        self._delivery = parts.delivery
        self._events = parts.events
        self._signals = parts.signals
        self._conduct = parts.conduct
        self._clock = parts.clock
        self._states = parts.states
        self._checkpoint = checkpoint
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
        except Stop:
            self._is_over = True
            if (run := self._quarantine.current) is not None:
                self._quarantine.leave(run)
            raise
        except BaseException:
            self._suspects.drop_runs()  # if a record runs alone, it ended the process: its note stays
            raise
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
        has_news = self._steps.take_in()
        self._steps.hand_out(self._clock())
        self._steps.answer_finished(0.0 if has_news else self._lane_slice)
        self._steps.record_progress()

    @property
    def _lane_slice(self) -> float:
        """How long to wait for a lane before the topics are polled again; a lane that finishes ends the wait."""
        is_restoring = self._states is not None and self._states.wait is not None
        if self._dispatch.has_backlog and self._quarantine.current is None and not is_restoring:
            return max(self._conduct.lane_slice, BACKLOG_SLICE)
        return self._conduct.lane_slice

    # Partitions come and go

    def assigned(self, partitions: Sequence[Partition]) -> None:
        if self._states is not None:
            self._states.assigned(partitions)
        self._events.assigned(partitions)

    def suspected(self, suspects: Sequence[Suspect]) -> None:
        """Called before any record of these partitions comes: each will run alone."""
        self._suspects.suspect(suspects)
        self._events.suspected(suspects)

    def is_in_doubt(self, partition: Partition) -> bool:
        """True if an earlier assignment's offset may still be committed, or the keys' states are not restored yet."""
        is_restoring = self._states is not None and self._states.is_restoring(partition)
        return is_restoring or self._delivery.is_in_doubt(partition)

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
        self._quarantine.forget(partitions)
        self._delivery.lost(partitions)
        self._forget_states(partitions)

    def _let_go(self, partitions: Sequence[Partition], deadline: float) -> None:
        began = self._clock()
        interrupted = self._steps.forget(partitions)
        self._suspects.release(partitions)
        try:
            while self._dispatch.holds(partitions) and self._clock() < min(deadline, self._stop_by()):
                self._steps.answer_finished(LANE_SLICE)
                self._steps.record_progress()
            unsettled = self._delivery.revoke(partitions, min(deadline, self._stop_by()))
            self._forget_states(partitions)
        finally:  # the record whose isolated run is broken off did not end the process
            if interrupted is not None:
                self._quarantine.leave(interrupted)
        self._events.revoked(partitions, self._clock() - began, unsettled)
        self._count_left(unsettled)

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Forget partitions that have moved already, and commit nothing. A batch that still runs finds no line."""
        self._steps.forget(partitions)
        self._suspects.release(partitions)
        unsettled = self._delivery.lost(partitions)
        self._forget_states(partitions)
        self._events.lost(partitions, unsettled)
        self._count_left(unsettled)

    def _count_left(self, unsettled: int) -> None:
        """Count the records that a drain leaves; before a drain they leave with a rebalance."""
        if self._signals.stop_asked:
            self._left += unsettled

    def _forget_states(self, partitions: Sequence[Partition]) -> None:
        if self._states is not None:
            self._states.forget(partitions)

    # The end

    def _drain(self) -> None:
        """Finish and commit all that is held. Raises `DeadlineMissed`, having committed nothing unsettled.

        When `LEAVE_AFTER` of the time is gone, requests that no lane has begun are left to their next owner. Otherwise
        many small batches of a slow model would take all the time, and the drain would end in an error without a cause.
        Partitions are let go after the group has taken the last commit. Unlike in a rebalance, polls bring that result.
        """
        leave_at = self._stop_by() - (1 - LEAVE_AFTER) * self._conduct.drain_timeout
        is_leaving = False
        self._steps.drain()
        while self._ledger.records or not self._delivery.is_idle:
            if self._clock() > self._stop_by():
                raise DeadlineMissed(
                    f"stopped before all was settled: {self._ledger.records} records taken are unanswered or "
                    "uncommitted and will be answered again"
                )
            if self._clock() > leave_at and self._has_waiting:
                self._steps.forget(list(self._ledger.oldest_by_partition()))
                is_leaving = True
            if is_leaving and self._is_drained:
                self._let_go(list(self._ledger.oldest_by_partition()), self._stop_by())
            # This poll is for the callbacks. A record that still comes is left to its next owner.
            self._source.poll(1, 0.0 if self._dispatch.in_flight else SHORTEST_WAIT)
            if self._states is not None:
                self._states.restore_some()
            self._steps.hand_out(self._clock())
            self._steps.answer_finished(LANE_SLICE)
            self._steps.record_progress()

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
    def _has_waiting(self) -> bool:
        """True if requests wait for a lane, or to run alone. A request that runs alone now is finished (`_drain`)."""
        run = self._quarantine.current
        return self._dispatch.next_due is not None if run is None else not run.is_called

    @property
    def _is_drained(self) -> bool:
        """True if all that ran is answered, and committed as far as possible."""
        return not (self._dispatch.is_running or self._ledger.awaits_delivery() or self._ledger.committable())

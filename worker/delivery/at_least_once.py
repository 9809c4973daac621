"""At least once: an offset is committed after the broker acknowledged its answer and every earlier one.

Answers go to an idempotent producer as they leave the ledger. No answer waits for a flush, and only delivery reports
count. Commits are asynchronous, one at a time, every `commit_interval`. After a failed commit the next one carries all
that is committable by then, so it neither stops nor stalls the loop. After a crash, uncommitted records are answered
again, never lost.

Only the loop's thread calls this. It owns no thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from worker.core.ordering.ledger import OffsetLedger, Stretch, taken_at
from worker.core.records import Partition
from worker.ports import Codec, Events, Offsets, Sink

# Seconds after which a commit without a result counts as lost, and the next one may go. The client gives up on a
# coordinator after 45.9 s under KIP-848 (measured 2026). Commits never move backwards, so a late result does no harm.
COMMIT_PATIENCE = 60.0

# Seconds of one wait for delivery reports while a revoke holds everything else up.
REPORT_SLICE = 0.01

# Seconds until the loop looks for delivery reports when it has nothing else to do. Without it a lone answer counted as
# acknowledged 50 to 150 ms late (measured 2026): at the next commit, or at the end of the loop's longest wait.
REPORT_DUE = 0.005


class AtLeastOnce:
    """Sends answers, settles them when they are delivered, and commits the settled offsets."""

    def __init__(
        self,
        *,
        ledger: OffsetLedger,
        encoder: Codec,
        sink: Sink,
        offsets: Offsets,
        events: Events,
        commit_interval: float,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._encoder = encoder
        self._sink = sink
        self._offsets = offsets
        self._events = events
        self._commit_interval = commit_interval
        self._clock = clock
        self._commit_due = clock() + commit_interval
        self._is_pushed = True
        self._commit_lost_at: float | None = None  # while a commit is outstanding: when to stop waiting for it

    def send(self, stretches: Sequence[Stretch]) -> None:
        """Hand the answers that leave to the producer, in order."""
        take, messages, send = self._ledger.take_answers, self._encoder.messages, self._sink.send
        for stretch in stretches:
            send(messages(take(stretch)), stretch)
        self._is_pushed = False

    def push(self) -> None:
        """Let the producer send messages that wait for company, because no more answers are coming for now."""
        if not self._is_pushed:
            self._is_pushed = True
            self._sink.push()

    def make_progress(self, now: float, timeout: float) -> Sequence[Partition]:
        """Serve delivery reports, waiting at most `timeout` seconds for one; commit when it is time.

        Returns no partitions: nothing sent is ever taken back, so none has to be read again.
        """
        self._hear_reports(now, timeout)
        self._hear_commit_results()
        if now >= self._commit_due and (self._commit_lost_at is None or now >= self._commit_lost_at):
            self._commit_due = now + self._commit_interval
            self._commit(now, self._ledger.committable())
        return ()

    @property
    def next_due(self) -> float | None:
        """When `make_progress` has something to do, reports included; None if nothing is taken or uncommitted."""
        if self.is_idle:
            return None
        due = self._commit_due if self._commit_lost_at is None else max(self._commit_due, self._commit_lost_at)
        return min(due, self._clock() + REPORT_DUE) if self._ledger.awaits_delivery() else due

    @property
    def is_idle(self) -> bool:
        """True if nothing is unsettled or uncommitted. Results of commits for partitions that left do not count."""
        return not self._ledger.records and not self._ledger.committable()

    def commit_promptly(self) -> None:
        """Commit as soon as there is something to commit, from now on."""
        self._commit_interval = self._commit_due = 0.0

    def revoke(self, partitions: Sequence[Partition], deadline: float) -> int:
        """Settle the answers sent for these partitions, commit as the last call, and forget the partitions.

        The commit is asynchronous and still reaches the coordinator before the partitions move (measured 2026 in 13
        hand-overs, both protocols). Returns how many records leave unsettled: their next owner answers them.
        """
        self.push()
        while self._ledger.awaits_delivery(partitions) and self._clock() < deadline:
            self._hear_reports(self._clock(), REPORT_SLICE)
        self._commit(self._clock(), self._ledger.committable(partitions))
        return self._ledger.forget(partitions)

    def lost(self, partitions: Sequence[Partition]) -> int:
        """Forget these partitions and commit nothing: they belong to another member already."""
        return self._ledger.forget(partitions)

    def is_in_doubt(self, partition: Partition) -> bool:  # noqa: ARG002  # as the loop asks
        """False: a commit that arrives late names only records that are answered, so it does no harm."""
        return False

    def _hear_reports(self, now: float, timeout: float) -> None:
        if delivered := self._sink.poll(timeout):
            self._ledger.settle(delivered)
            self._events.settled(taken_at(delivered), now)

    def _hear_commit_results(self) -> None:
        for result in self._offsets.commit_results():
            self._commit_lost_at = None
            self._ledger.committed(result.committed)
            self._events.committed(result)

    def _commit(self, now: float, offsets: Mapping[Partition, int]) -> None:
        if offsets:
            self._offsets.commit(offsets)
            self._commit_lost_at = now + COMMIT_PATIENCE

"""Exactly once: answers and the offsets of their requests become durable in one transaction, or not at all.

    send ──▶ [ open: answers sent, not yet readable ] ──commit──▶ [ ending, on a thread of its own ] ──▶ settled
      └────▶ [ waiting: answers that came meanwhile ] ◀────────────────── taken back: forget, read again

The first answer opens a transaction. It holds the answers of one or more batches, and ends `commit_interval` later, or
as soon as everything taken is in it. While it ends nothing is produced, because there is only one producer. Answers
wait here, and the loop takes, stacks and dispatches meanwhile. If a transaction failed, or its end is not known, its
partitions are forgotten, and read again from the group's offsets.

Failures in a row make transactions smaller, down to one record. If a record's own transaction still fails, the worker
stops, however well other partitions do. With successes transactions grow again, little by little, because they may have
failed for their size: a quota or a slow link did not let them end in time. They hold one record again while a record is
taken whose partition failed and has not come further since. Only the loop's thread calls this. It owns no thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import ceil, inf
from typing import NamedTuple

from worker.core.failures import KafkaFatal
from worker.core.ordering.ledger import Line, OffsetLedger, Stretch, taken_at
from worker.core.records import CommitResult, Partition
from worker.ports import Codec, Events, Transactions

# Seconds of one wait for the end of a transaction while a revoke holds everything else up.
END_SLICE = 0.01

# Seconds until the loop looks if a transaction has ended when it has nothing else to do. To end one takes 5 to 10 ms.
END_DUE = 0.001

# Failures in a row after which a transaction holds only one record, and after which the worker stops. A broker that is
# away causes no failures, because the producer waits for it.
PATIENCE_WITH_MANY = 3
PATIENCE = 9

# After failures, a full transaction that committed lets the next one hold this many times its records; one that failed
# halves them. To grow from 1 to 10,000 records takes 37 transactions. Where a link can take only so much, failures cost
# a fifth of its capacity, not half.
GROWTH = 1.25

# Seconds without a failure after which a failed partition is forgotten: its answers may have been committed after all.
# A partition that goes on failing does so every few seconds.
FORGOTTEN_AFTER = 60.0

# Seconds to wait after the first failure; each further failure doubles them: 16 in all before the worker stops.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class _Failed(NamedTuple):
    """A partition's committed offset when a transaction with its answers failed first, and the last failure's time."""

    offset: int
    last: float


class ExactlyOnce:
    """Sends answers into transactions, and settles them when the transaction is committed."""

    def __init__(
        self,
        *,
        ledger: OffsetLedger,
        encoder: Codec,
        transactions: Transactions,
        events: Events,
        commit_interval: float,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._encoder = encoder
        self._transactions = transactions
        self._events = events
        self._commit_interval = commit_interval
        self._clock = clock
        self._waiting: deque[Stretch] = deque()
        self._inside: list[Stretch] = []  # places whose answers are in the transaction, open or ending
        self._records_inside = 0
        self._offsets: dict[Partition, int] = {}  # next offsets to commit with it
        self._is_ending = self._is_taken_back = False
        self._is_urgent = False
        self._commit_due = 0.0  # when the open transaction must end
        self._begin_at = 0.0  # the earliest time for the next transaction
        self._astray: set[Partition] = set()  # their answers were taken back; `make_progress` returns them
        self._failures = 0  # in a row: until all partitions of failed transactions have come further
        self._failed_at: dict[Partition, _Failed] = {}  # partitions of failed transactions that have not come further
        self._most: float = inf  # records that a transaction may hold after failures, unless one record is searched for

    def send(self, stretches: Sequence[Stretch]) -> None:
        """Put the answers that leave into the transaction, in order, or keep them for the next one."""
        self._waiting.extend(stretches)
        self._fill()

    def push(self) -> None:
        """Do nothing: a transaction ends when everything taken is in it, or when it is due, and sends all messages."""

    def make_progress(self, now: float, timeout: float) -> Sequence[Partition]:
        """End the transaction when it is time, and hear how the last one ended, waiting at most `timeout` seconds.

        Returns the partitions whose answers were taken back: forgotten here, to be read again. Raises `KafkaFatal`.
        """
        if self._is_ending:
            self._hear(timeout)
        else:  # for a short time: the open transaction may be due
            self._transactions.serve(min(timeout, END_DUE) if self._inside else timeout)
        if self._is_ending:
            return ()
        if self._astray:
            return self._give_back()
        self._fill()
        if self._inside and (self._is_complete or now >= self._commit_due):
            self._commit()
        return ()

    @property
    def next_due(self) -> float | None:
        """When `make_progress` has something to do; None if nothing is taken, or nothing taken is answered."""
        if self._is_ending or self._astray:
            return self._clock() + END_DUE
        if self._inside:
            return self._clock() + END_DUE if self._is_complete else self._commit_due
        return self._begin_at if self._waiting else None

    @property
    def is_idle(self) -> bool:
        """True if nothing is unsettled or uncommitted."""
        return not (self._ledger.records or self._inside or self._waiting or self._astray)

    def commit_promptly(self) -> None:
        """Commit as soon as there is something to commit, from now on."""
        self._is_urgent = True

    def revoke(self, partitions: Sequence[Partition], deadline: float) -> int:
        """Commit the answers of these partitions, and forget them. Returns how many records leave unsettled.

        After the deadline nothing can be committed any more: the group has given the partitions to another member, and
        refuses this member's offsets.
        """
        while self._holds(partitions) and not self._astray and self._clock() < deadline:
            if self._is_ending:
                self._hear(END_SLICE)
            elif not self._inside:
                self._begin_at = 0.0
                self._fill()
            else:
                self._commit()
        return self.lost(partitions)

    def lost(self, partitions: Sequence[Partition]) -> int:
        """Forget these partitions. If the open transaction has answers of theirs, all of it is taken back."""
        if not self._is_ending and self._has_inside(partitions):
            self._abort()
        self._drop_waiting(partitions)
        self._astray.difference_update(partitions)
        self._forget_failures([partition for partition in partitions if partition in self._failed_at])
        return self._ledger.forget(partitions)

    def is_in_doubt(self, partition: Partition) -> bool:
        """True if the transaction that is ending may commit an offset of this partition; one taken back cannot."""
        return self._is_ending and not self._is_taken_back and partition in self._offsets

    def _holds(self, partitions: Collection[Partition]) -> bool:
        return self._has_inside(partitions) or any(stretch.partition in partitions for stretch in self._waiting)

    def _has_inside(self, partitions: Collection[Partition]) -> bool:
        return not self._offsets.keys().isdisjoint(partitions)

    @property
    def _is_complete(self) -> bool:
        """True if the open transaction waits for no more answers."""
        return self._is_urgent or self._records_inside >= self._limit or self._records_inside == self._ledger.records

    @property
    def _limit(self) -> float:
        """How many records a transaction may hold now."""
        return 1 if self._is_searching else self._most

    @property
    def _is_searching(self) -> bool:
        """True if a record whose answer fails its transactions may be among those taken."""
        return self._failures >= PATIENCE_WITH_MANY and self._ledger.owes(self._failed_at)

    def _fill(self) -> None:
        """Send the waiting answers, as many as a transaction takes now."""
        if self._is_ending or self._astray or not self._waiting or self._clock() < self._begin_at:
            return
        if not self._inside:
            self._transactions.begin()
            self._commit_due = self._clock() + self._commit_interval
        take, messages, send = self._ledger.take_answers, self._encoder.messages, self._transactions.send
        limit = self._limit
        while self._waiting and self._records_inside < limit:
            stretch = self._waiting.popleft()
            if stretch.records > limit - self._records_inside:
                stretch, rest = stretch.cut(int(limit) - self._records_inside)
                self._waiting.appendleft(rest)
            self._inside.append(stretch)
            self._records_inside += stretch.records
            self._offsets[stretch.partition] = stretch.next_offset
            send(messages(take(stretch)), stretch)

    def _commit(self) -> None:
        self._is_ending = True
        self._transactions.commit(self._offsets)

    def _abort(self) -> None:
        self._is_ending = self._is_taken_back = True
        self._transactions.abort()

    def _hear(self, timeout: float) -> None:
        try:
            ending = self._transactions.ended(timeout)
        except KafkaFatal:  # the producer that fenced this one has taken it back: it is in doubt no more
            self._is_ending = False
            raise
        if ending is None:
            return
        inside, offsets, was_meant = self._inside, self._offsets, self._is_taken_back
        records = self._records_inside
        self._inside, self._offsets, self._records_inside = [], {}, 0
        self._is_ending = self._is_taken_back = False
        self._events.transaction_ended(ending, records)
        if ending.failure is None:
            self._settle(inside, offsets)
            if records >= self._most and not self._is_searching:
                self._most = ceil(records * GROWTH)
            return
        ours = {places.line for places, _, _ in inside if self._ledger.knows(places)}
        self._astray.update(line.partition for line in ours)
        if ours and not was_meant:
            self._count_failure(inside, ours, ending.failure, records)

    def _settle(self, inside: Sequence[Stretch], offsets: Mapping[Partition, int]) -> None:
        since = self._clock() - FORGOTTEN_AFTER
        failed = self._failed_at.items()
        self._forget_failures([p for p, at in failed if offsets.get(p, at.offset) > at.offset or at.last < since])
        self._ledger.settle(inside)
        self._ledger.committed(offsets)
        self._events.settled(taken_at(inside), self._clock())
        self._events.committed(CommitResult(offsets, {}))

    def _forget_failures(self, partitions: Iterable[Partition]) -> None:
        """Forget failed partitions that came further or left. Failures count on while another one has not."""
        for partition in partitions:
            del self._failed_at[partition]
        if not self._failed_at:
            self._failures = 0

    def _count_failure(self, inside: Sequence[Stretch], ours: Iterable[Line], failure: str, records: int) -> None:
        self._failures += 1
        for line in ours:
            earlier = self._failed_at.get(line.partition)
            stood = line.next_offset if earlier is None else earlier.offset
            self._failed_at[line.partition] = _Failed(stood, self._clock())
        if self._failures >= PATIENCE_WITH_MANY:
            self._most = 1
        elif self._most < inf:
            self._most = max(1, records // 2)
        if self._failures >= PATIENCE and records == 1:
            alone = next(stretch for stretch in inside if stretch.records).first
            raise KafkaFatal(
                f"{self._failures} transactions in a row failed, the last one with nothing in it but the answer to "
                f"{alone}: {failure}; nothing is committed past it: mend the topics or their access, and start again"
            )
        self._begin_at = self._clock() + min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._failures - 1))

    def _give_back(self) -> Sequence[Partition]:
        """Forget the partitions that were taken back, and their waiting answers: all of it is read again."""
        partitions, self._astray = list(self._astray), set()
        self._drop_waiting(partitions)
        self._ledger.forget(partitions)
        return partitions

    def _drop_waiting(self, partitions: Collection[Partition]) -> None:
        self._waiting = deque(stretch for stretch in self._waiting if stretch.partition not in partitions)

"""Exactly once: answers and the offsets they answer become durable in one transaction, or not at all.

    send ──▶ [ open: answers sent, not yet readable ] ──commit──▶ [ ending, on a thread of its own ] ──▶ settled
      └────▶ [ waiting: answers that came meanwhile ] ◀────────────────── taken back: forget, read again

A transaction is opened by the first answer, holds the answers of one or more batches, and ends `commit_interval` after
it was opened, or as soon as everything taken is in it. While one ends nothing is produced, because there is one
producer; answers wait here, and the loop takes, stacks and dispatches meanwhile. The partitions of one that failed are
forgotten, and read again from the group's offsets; so are the partitions of a transaction whose end is not known.

Failures in a row make transactions smaller, down to one record; a record whose own transaction still fails stops the
worker, however well other partitions do. With successes they grow again, little by little: they may have failed because
they were too large to end in time, behind a quota or a slow link. They hold one record again while there is something
of a partition that failed and has not come further since. Called by the loop's thread alone, and owns no thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import ceil, inf
from typing import NamedTuple

from worker.core.failures import KafkaFatal
from worker.core.ordering.ledger import OffsetLedger, taken_at
from worker.core.records import CommitResult, Line, Partition, Place, Prediction
from worker.core.runs import predictions, value_bytes
from worker.ports import Encoder, Events, GroupCommits, Transactions

# How long one wait for the end of a transaction lasts while a revoke holds everything else up, seconds.
END_SLICE = 0.01

# How soon the loop looks whether a transaction has ended when it has nothing else to do, seconds. One takes 5 to 10 ms.
END_DUE = 0.001

# Failures in a row after which a transaction holds one record only, and after which the worker stops. A broker that is
# away does not count up to them, because its producer waits for it.
PATIENCE_WITH_MANY = 3
PATIENCE = 9

# After failures, a transaction that was full and committed lets the next one hold so many times its records; one that
# failed lets it hold half of them. From 1 to 10,000 records it takes 37 transactions, and where a link takes only so
# much, failures cost a fifth of that, not half of it.
GROWTH = 1.25

# A partition that failed and has brought nothing for so long, seconds, may have been committed all the same. One that
# goes on failing does so every few seconds.
FORGOTTEN_AFTER = 60.0

# The wait after the first failure; each further one doubles it. Seconds: 16 in all before the worker stops.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class _Failed(NamedTuple):
    """Where a partition was committed when a transaction with its answers failed, and when one did so last."""

    offset: int
    last: float


class ExactlyOnce:
    """Sends outcomes into transactions, and settles them when these are committed."""

    def __init__(
        self,
        *,
        ledger: OffsetLedger,
        encoder: Encoder,
        transactions: Transactions,
        group: GroupCommits,
        events: Events,
        commit_interval: float,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._encoder = encoder
        self._transactions = transactions
        self._commits = group
        self._events = events
        self._commit_interval = commit_interval
        self._clock = clock
        self._waiting: deque[Place] = deque()
        self._inside: list[Place] = []  # whose answers are in the transaction, open or ending
        self._records_inside = 0
        self._offsets: dict[Partition, int] = {}  # next offsets to commit with it
        self._is_ending = self._is_taken_back = False
        self._is_urgent = False
        self._commit_due = 0.0  # of the open transaction
        self._begin_at = 0.0  # not before
        self._astray: set[Partition] = set()  # what was sent for them was taken back, and they were not yet given back
        self._failures = 0  # until all partitions with answers in a transaction that failed have come further
        self._failed_at: dict[Partition, _Failed] = {}  # those that have not yet
        self._most: float = inf  # records that a transaction may hold, after failures, where nothing is searched for

    def send(self, places: Sequence[Place]) -> None:
        """Put the outcomes of these places into the transaction, in order, or let them wait for the next one."""
        self._waiting.extend(places)
        self._fill()

    def push(self) -> None:
        """Nothing: a transaction ends when everything taken is in it, or when it is due, and takes all along."""

    def turn(self, now: float, timeout: float) -> Sequence[Partition]:
        """End the transaction when it is time, and hear how the last one ended, waiting at most `timeout` seconds.

        Returns the partitions whose answers were taken back: forgotten here, to be read again. Raises `KafkaFatal`.
        """
        if self._is_ending:
            self._hear(timeout)
        else:  # not for long: answers inside may wait for a note, and only a poll of the consumer tells of it
            self._transactions.serve(min(timeout, END_DUE) if self._inside else timeout)
        if self._is_ending:
            return ()
        if self._astray:
            return self._give_back()
        self._fill()
        if self._inside and self._is_due(now):
            self._commit()
        return ()

    @property
    def next_due(self) -> float | None:
        """When `turn` has something to do; None when nothing is taken, or nothing of it answered."""
        if self._is_ending or self._astray:
            return self._clock() + END_DUE
        if self._inside:
            is_soon = self._is_complete or self._commits.is_marking(self._offsets)
            return self._clock() + END_DUE if is_soon else self._commit_due
        return self._begin_at if self._waiting else None

    @property
    def is_idle(self) -> bool:
        """Nothing is unsettled or uncommitted."""
        return not (self._ledger.records or self._inside or self._waiting or self._astray)

    def commit_promptly(self, *, is_urgent: bool) -> None:
        """While it is urgent, commit as soon as there is something to commit."""
        self._is_urgent = is_urgent

    def revoke(self, partitions: Sequence[Partition], deadline: float) -> int:
        """Commit what is answered of these partitions, forget them. Returns how many records leave unsettled.

        What is not committed by the deadline cannot be any more: the group has given the partitions to another
        member, and fences this one's offsets off.
        """
        while self._holds(partitions) and not self._astray and self._clock() < deadline:
            if self._is_ending:
                self._hear(END_SLICE)
            elif not self._inside:
                self._begin_at = 0.0
                self._fill()
            elif not self._clears_notes():
                break  # the result of a note is heard in a poll, and this is one
            else:
                self._commit()
        return self.lost(partitions)

    def lost(self, partitions: Sequence[Partition]) -> int:
        """Forget these partitions; what was sent for them and is not committed is taken back, with its company."""
        if not self._is_ending and self._has_inside(partitions):
            self._abort()
        self._drop_waiting(partitions)
        self._astray.difference_update(partitions)
        self._forget_failures([partition for partition in partitions if partition in self._failed_at])
        return self._ledger.forget(partitions)

    def is_in_doubt(self, partition: Partition) -> bool:
        """Whether the transaction that is ending may commit an offset of this partition; what we take back cannot."""
        return self._is_ending and not self._is_taken_back and partition in self._offsets

    def _holds(self, partitions: Collection[Partition]) -> bool:
        return self._has_inside(partitions) or any(place.line.partition in partitions for place in self._waiting)

    def _has_inside(self, partitions: Collection[Partition]) -> bool:
        return not self._offsets.keys().isdisjoint(partitions)

    def _is_due(self, now: float) -> bool:
        return (self._is_complete or now >= self._commit_due) and self._clears_notes()

    def _clears_notes(self) -> bool:
        """Whether the group has nothing of the partitions inside that must not be there while the transaction ends.

        A record that ran alone, and whose answer is inside, ended no process. While the end is in doubt its note could
        not be withdrawn: that is a commit, and would undo the transaction's own. So it goes before.
        """
        return self._commits.withdraw_notes(self._offsets) and not self._commits.is_marking(self._offsets)

    @property
    def _is_complete(self) -> bool:
        """The open transaction waits for nothing more."""
        return self._is_urgent or self._records_inside >= self._limit or self._records_inside == self._ledger.records

    @property
    def _limit(self) -> float:
        """Records that a transaction may hold now."""
        return 1 if self._is_searching else self._most

    @property
    def _is_searching(self) -> bool:
        """Whether what is taken may hold the answer that no transaction takes."""
        return self._failures >= PATIENCE_WITH_MANY and self._ledger.owes(self._failed_at)

    def _fill(self) -> None:
        """Send what waits, as far as a transaction takes it now."""
        if self._is_ending or self._astray or not self._waiting or self._clock() < self._begin_at:
            return
        if not self._inside:
            self._transactions.begin()
            self._commit_due = self._clock() + self._commit_interval
        encode, send, weigh = self._encoder.encode, self._transactions.send, self._ledger.weigh
        limit = self._limit
        while self._waiting and self._records_inside < limit:
            place = self._waiting.popleft()
            assert place.outcome is not None
            if place.records > limit - self._records_inside:
                self._waiting.extendleft(reversed(self._unravelled(place)))
                continue
            messages = encode(place.outcome)
            place.outcome = None  # the batch's arrays and the request need not wait for the broker
            self._inside.append(place)
            self._records_inside += place.records
            self._offsets[place.line.partition] = place.offset + 1
            weigh(place, value_bytes(messages))
            send(messages, place)

    def _unravelled(self, place: Place) -> list[Place]:
        """A place for each of the records whose outcomes this one's is: one of them may be what fails transactions."""
        outcome = place.outcome
        assert isinstance(outcome, Prediction)
        outcomes = predictions(outcome)
        places = self._ledger.unravel(place, [single.request for single in outcomes])
        for single, its_own in zip(places, outcomes, strict=True):
            single.outcome = its_own
        return places

    def _commit(self) -> None:
        self._is_ending = True
        self._transactions.commit(self._offsets)

    def _abort(self) -> None:
        self._is_ending = self._is_taken_back = True
        self._transactions.abort()

    def _hear(self, timeout: float) -> None:
        try:
            ending = self._transactions.ended(timeout)
        except KafkaFatal:  # the one that fenced us has taken it back: it is in doubt no more
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
        ours = {place.line for place in inside if self._ledger.knows(place)}
        self._astray.update(line.partition for line in ours)
        for place in inside if ending.is_in_doubt else ():
            place.is_in_doubt = True
        if ours and not was_meant:
            self._count_failure(inside, ours, ending.failure, records)

    def _settle(self, inside: Sequence[Place], offsets: Mapping[Partition, int]) -> None:
        since = self._clock() - FORGOTTEN_AFTER
        failed = self._failed_at.items()
        self._forget_failures([p for p, at in failed if offsets.get(p, at.offset) > at.offset or at.last < since])
        self._ledger.settle(inside)
        self._ledger.committed(offsets)
        self._events.settled(taken_at(inside), self._clock())
        self._events.committed(CommitResult(offsets, {}))

    def _forget_failures(self, partitions: Iterable[Partition]) -> None:
        """These have come further, or are another member's. Failures count on while any other has not."""
        for partition in partitions:
            del self._failed_at[partition]
        if not self._failed_at:
            self._failures = 0

    def _count_failure(self, inside: Sequence[Place], ours: Iterable[Line], failure: str, records: int) -> None:
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
            source = f"{inside[0].line.partition}/{inside[0].offset}"
            raise KafkaFatal(
                f"{self._failures} transactions in a row failed, the last one with nothing in it but the answer to "
                f"{source}: {failure}; nothing is committed past it: mend the topics or their access, and start again"
            )
        self._begin_at = self._clock() + min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._failures - 1))

    def _give_back(self) -> Sequence[Partition]:
        """Forget what was taken back, with what waits behind it: all of it is read again."""
        partitions, self._astray = list(self._astray), set()
        self._drop_waiting(partitions)
        self._ledger.forget(partitions)
        return partitions

    def _drop_waiting(self, partitions: Collection[Partition]) -> None:
        self._waiting = deque(place for place in self._waiting if place.line.partition not in partitions)

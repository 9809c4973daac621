"""Suspect partitions and their records, in the order taken. Pure, and called by `quarantine.py` alone.

A partition is suspect when its records ended the process several times before any of them was settled. Which one it was
is not known: they shared batches, and the process is gone. So each of its records is to run alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from worker.core.batching.batcher import Batcher, BatchPolicy, Group
from worker.core.records import ModelKey, Partition, Place, Record, Request, Suspect

# Records of one suspect that wait, while further ones stay with Kafka: an isolated run takes tens of milliseconds, and
# what waits here counts against the bounds that all partitions share.
MOST_WAITING = 64


@dataclass(slots=True, eq=False)
class IsolatedRun:
    """One record set aside. `is_called`: the group was asked to note it; `is_begun`: it was decoded, and runs.

    `is_behind`: it is no suspect's any more, and need not run alone, but must not go past records that do.
    """

    record: Record
    place: Place
    is_behind: bool = False
    is_called: bool = False
    is_begun: bool = False


class Suspects:
    """Owns which partitions are suspect, and their records. The first of these is the only one that may run."""

    def __init__(self, policies: Mapping[ModelKey, BatchPolicy], most_in_flight: int) -> None:
        """`most_in_flight`: the most records taken and not settled, so the most that can hold the poison record."""
        self._most_in_flight = most_in_flight
        self._suspects: dict[Partition, Suspect] = {}
        self._claimed: Counter[Partition] = Counter()  # records of suspects, since they began or were rewound
        self.runs: deque[IsolatedRun] = deque()  # the first one is next, or under way
        self._waiting: Counter[Partition] = Counter()
        self._withheld: set[Partition] = set()  # no longer fetched
        self._pieces = Batcher(policies)  # of the request that runs alone: one, unless it is larger than a batch

    def __bool__(self) -> bool:
        """Whether records must be looked at before they are decoded."""
        return bool(self._suspects or self.runs)

    def has_waiting(self, partition: Partition) -> bool:
        """Whether records of this partition are set aside."""
        return self._waiting[partition] > 0

    def suspect(self, suspects: Iterable[Suspect]) -> None:
        """From now on the records of these partitions are set aside, until `claims` or `release` ends it."""
        self._suspects.update((suspect.partition, suspect) for suspect in suspects)

    def claims(self, record: Record) -> Suspect | None:
        """The suspect this record belongs to; None for most. To be asked once for each record.

        A record past its end clears a suspect, and so do as many as a process holds: it begins again where this time it
        ended, should that have been too few.
        """
        partition = record.partition
        suspect = self._suspects.get(partition)
        if suspect is None:
            return None
        if record.offset >= suspect.until or self._claimed[partition] >= self._most_in_flight:
            self.release([partition])
            return None
        self._claimed[partition] += 1
        return suspect

    def add(self, record: Record, place: Place, *, is_behind: bool = False) -> bool:
        """Set a record aside. True when its partition has enough waiting here: once, until `end` says the opposite."""
        partition = record.partition
        self.runs.append(IsolatedRun(record, place, is_behind))
        self._waiting[partition] += 1
        is_enough = self._waiting[partition] >= MOST_WAITING and partition not in self._withheld
        if is_enough:
            self._withheld.add(partition)
        return is_enough

    def begin(self, request: Request, now: float) -> None:
        """The current record is this request; `next_group` gives its groups."""
        self._pieces.add(request, now)

    @property
    def has_pieces(self) -> bool:
        """Whether something of the current request has not run yet."""
        return self._pieces.next_due is not None

    def next_group(self) -> Group | None:
        """The next group of the current request."""
        return self._pieces.drain()

    def end(self) -> bool:
        """The current record is answered for good. True when its partition had enough waiting here and has few now."""
        partition = self.runs.popleft().record.partition
        self._waiting[partition] -= 1
        is_few = self._waiting[partition] <= MOST_WAITING // 2 and partition in self._withheld
        if is_few:
            self._withheld.remove(partition)
        return is_few

    def forget(self, partitions: Collection[Partition]) -> None:
        """These are not ours any more, or are read again; a suspect that stays ours stays one."""
        self._pieces.forget(partitions)
        self.runs = deque(run for run in self.runs if run.record.partition not in partitions)
        for partition in partitions:
            del self._waiting[partition]
            del self._claimed[partition]
        self._withheld.difference_update(partitions)

    def drop_runs(self) -> None:
        """None of the records set aside will run."""
        self.runs.clear()

    def release(self, partitions: Iterable[Partition]) -> None:
        """These are no suspects any more, or another member's."""
        for partition in partitions:
            self._suspects.pop(partition, None)

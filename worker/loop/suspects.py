"""Suspect partitions and their records, in the order taken. Pure; only `quarantine.py` calls it.

A partition is suspect if its records ended the process several times before any of them was settled. The guilty
record is unknown: they shared batches, and the process is gone. So each of its records must run alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.ordering.ledger import Place
from worker.core.records import ModelKey, Partition, Record, Suspect

# The most records of one suspect that wait here; further ones stay with Kafka. An isolated run takes tens of
# milliseconds, and records that wait here count against the bounds that all partitions share.
MOST_WAITING = 64


@dataclass(slots=True, eq=False)
class IsolatedRun:
    """One record set aside. `is_called`: the group was asked to note it; `is_begun`: it was decoded, and runs.

    `is_behind`: its partition is not suspect any more. It need not run alone, but must not overtake records that do.
    """

    record: Record
    place: Place
    is_behind: bool = False
    is_called: bool = False
    is_begun: bool = False


class Suspects:
    """Owns the suspect partitions and their records. Only the first of these records may run."""

    def __init__(self, policies: Mapping[ModelKey, BatchPolicy], most_in_flight: int) -> None:
        """`most_in_flight`: the most records taken and not settled. The poison record is among that many."""
        self._most_in_flight = most_in_flight
        self._suspects: dict[Partition, Suspect] = {}
        self._claimed: Counter[Partition] = Counter()  # records of suspects, since the assignment or a rewind
        self.runs: deque[IsolatedRun] = deque()  # the first one runs next, or now
        self._waiting: Counter[Partition] = Counter()
        self._withheld: set[Partition] = set()  # no longer fetched
        self.pieces = Batcher(policies)  # the record that runs alone; in pieces if it is larger than a batch

    def __bool__(self) -> bool:
        """True if records must be looked at before they are decoded."""
        return bool(self._suspects or self.runs)

    def has_waiting(self, partition: Partition) -> bool:
        """True if records of this partition are set aside."""
        return self._waiting[partition] > 0

    def suspect(self, suspects: Iterable[Suspect]) -> None:
        """Set the records of these partitions aside from now on, until `claims` or `release` ends that."""
        self._suspects.update((suspect.partition, suspect) for suspect in suspects)

    def claims(self, record: Record) -> Suspect | None:
        """The suspect that this record belongs to; None for most. Call it once for each record.

        A record at or after `until` clears a suspect. So do as many records as a process can hold. If these were too
        few, the partition becomes suspect again, from the record where it was cleared.
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
        """Set a record aside. Returns True if its partition has just got enough waiting, and must be withheld."""
        partition = record.partition
        self.runs.append(IsolatedRun(record, place, is_behind))
        self._waiting[partition] += 1
        is_enough = self._waiting[partition] >= MOST_WAITING and partition not in self._withheld
        if is_enough:
            self._withheld.add(partition)
        return is_enough

    def end(self) -> bool:
        """Drop the current record, which is answered. Returns True if its withheld partition has few waiting again."""
        partition = self.runs.popleft().record.partition
        self._waiting[partition] -= 1
        is_few = self._waiting[partition] <= MOST_WAITING // 2 and partition in self._withheld
        if is_few:
            self._withheld.remove(partition)
        return is_few

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the records of these partitions, which left or are read again. A partition that stays, stays suspect."""
        self.pieces.forget(partitions)
        self.runs = deque(run for run in self.runs if run.record.partition not in partitions)
        for partition in partitions:
            del self._waiting[partition]
            del self._claimed[partition]
        self._withheld.difference_update(partitions)

    def release(self, partitions: Iterable[Partition]) -> None:
        """End the suspicion: these partitions are cleared, or are another member's now."""
        for partition in partitions:
            self._suspects.pop(partition, None)

"""Records that may end the process run alone, so that the one that does is known.

A partition is suspect when its records ended the process several times before any of them was settled. Which one it was
nobody knows: they shared batches, and the process is gone. So the records of suspects are set aside, undecoded, and
tried one at a time, with nothing else in the lanes, and nothing else decoded meanwhile:

    earlier records settled ─▶ lanes empty ─▶ the group notes it ─▶ decode, run ─▶ answer committed ─▶ the next

What a poll brings in that time is postponed. A process that dies meanwhile leaves that note behind. Its successor finds
the record convicted and answers it with an error, without decoding or running it. Pure, and owned by the loop.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from worker.core.batching.batcher import Batcher, BatchPolicy, Group
from worker.core.ordering.ledger import Place
from worker.core.records import Partition, Record, Request, Suspect

# Records of one suspect that wait, while further ones stay with Kafka: a trial takes tens of milliseconds, and what
# waits here counts against the bounds that all partitions share.
MOST_WAITING = 64
# Records that wait for the end of a trial before all fetching stops: its answer may take as long as a broker is away.
MOST_POSTPONED = 256
# The same in bytes of values, of which a record may have a mebibyte and more.
MOST_BYTES_POSTPONED = 16 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Trial:
    """One record set aside. `is_called`: the group is told of it; `is_begun`: it was decoded, and runs or ran."""

    record: Record
    place: Place
    is_called: bool = False
    is_begun: bool = False


class Trials:
    """The suspects, and their records in the order taken. The first one is the only one that may run."""

    def __init__(self, policy: BatchPolicy, most_in_flight: int) -> None:
        """`most_in_flight`: the most records taken and not settled, so the most among which the culprit can be."""
        self._most_in_flight = most_in_flight
        self._suspects: dict[Partition, Suspect] = {}
        self._claimed: Counter[Partition] = Counter()  # records of suspects, since they began or were rewound
        self._trials: deque[Trial] = deque()
        self._waiting: Counter[Partition] = Counter()
        self._withheld: set[Partition] = set()  # told to wait
        self._pieces = Batcher(policy)  # of the request on trial: one, unless it is larger than a batch
        self._postponed: list[Record] = []

    @property
    def has_suspects(self) -> bool:
        """Whether records must be looked at before they are decoded."""
        return bool(self._suspects)

    @property
    def current(self) -> Trial | None:
        """The record that is tried next, or now."""
        return self._trials[0] if self._trials else None

    @property
    def is_sitting(self) -> bool:
        """Whether a process that dies now would convict the record on trial."""
        return bool(self._trials) and self._trials[0].is_called

    @property
    def has_postponed_enough(self) -> bool:
        """Whether no more should come until the trial is over."""
        if not self._postponed:  # as in nearly every turn
            return False
        size = sum(len(record.value or b"") for record in self._postponed)
        return len(self._postponed) >= MOST_POSTPONED or size >= MOST_BYTES_POSTPONED

    def postpone(self, records: Sequence[Record]) -> None:
        """Keep what came while a record was on trial."""
        self._postponed += records

    def resume(self) -> Sequence[Record]:
        """What was postponed, in the order it came, if it may be taken now."""
        if not self._postponed or self.is_sitting:
            return ()
        postponed, self._postponed = self._postponed, []
        return postponed

    def suspect(self, suspects: Iterable[Suspect]) -> None:
        """From now on the records of these partitions are set aside, until their suspicion ends."""
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
            self.acquit([partition])
            return None
        self._claimed[partition] += 1
        return suspect

    def add(self, record: Record, place: Place) -> bool:
        """Set a record aside. True when its partition has enough waiting here: once, until `end` says the opposite."""
        partition = record.partition
        self._trials.append(Trial(record, place))
        self._waiting[partition] += 1
        is_enough = self._waiting[partition] >= MOST_WAITING and partition not in self._withheld
        if is_enough:
            self._withheld.add(partition)
        return is_enough

    def run(self, request: Request, now: float) -> None:
        """The record on trial is this request; `next_group` gives what to run."""
        self._pieces.add(request, now)

    def next_group(self) -> Group | None:
        """What of the request on trial has not run yet."""
        return self._pieces.drain()

    def end(self) -> bool:
        """The record on trial is answered for good. True when its partition had enough waiting here and has few now."""
        partition = self._trials.popleft().record.partition
        self._waiting[partition] -= 1
        is_few = self._waiting[partition] <= MOST_WAITING // 2 and partition in self._withheld
        if is_few:
            self._withheld.remove(partition)
        return is_few

    def forget(self, partitions: Collection[Partition]) -> None:
        """These are not ours any more, or are read again; a suspect that stays ours stays one."""
        self._pieces.forget(partitions)
        self._trials = deque(trial for trial in self._trials if trial.record.partition not in partitions)
        self._postponed = [record for record in self._postponed if record.partition not in partitions]
        for partition in partitions:
            del self._waiting[partition]
            del self._claimed[partition]
        self._withheld.difference_update(partitions)

    def convict(self) -> None:
        """This process ends of an error that nobody expected: what it noted of the record on trial is to stay."""
        self._trials.clear()

    def acquit(self, partitions: Iterable[Partition]) -> None:
        """These are no suspects any more, or somebody else's."""
        for partition in partitions:
            self._suspects.pop(partition, None)

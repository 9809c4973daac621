"""Commits that move no offset, and note beside it how often in a row a process died before it settled anything.

    attempts=n         handed out n times since the last progress
    attempts=n trial   and the record at this offset was about to run alone
    attempts=n new     and the group has never committed an answer here

A commit of the delivery's carries no note, so progress clears it; what other tools write there counts as none.

A partition has one on its way at a time, so that none overtakes another. None is sent while the delivery may commit
something of the partition: a note that arrived after such a commit would take it back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from worker.core.records import Partition

# A partition read with so many is a suspect: two deaths in a row may be bad luck with machines, three are more
# likely a record's doing.
SUSPECT_FROM = 3

# A note without a result for so long is sent again: on the same connection, where the later one is served later. The
# client itself gives up on a coordinator after 45.9 s under KIP-848 (measured 2026), and records wait for this.
PATIENCE = 10.0

# After a failure one that must succeed goes again so much later, seconds.
RETRY_AFTER = 0.1


_TEXT = re.compile(r"attempts=([0-9]{1,9})( trial)?( new)?")


class Attempts(NamedTuple):
    """As a commit's metadata says it. `is_isolated`: the record at the offset was about to run alone.

    `is_new`: the delivery has never committed anything of the partition.
    """

    times: int
    is_isolated: bool = False
    is_new: bool = False

    def __str__(self) -> str:
        return f"attempts={self.times}{' trial' if self.is_isolated else ''}{' new' if self.is_new else ''}"


NONE, NEW = Attempts(0), Attempts(0, is_new=True)


def read_attempts(metadata: str | None) -> Attempts | None:
    """What the metadata of a commit says; None when it is not ours."""
    found = _TEXT.fullmatch(metadata or "")
    return None if found is None else Attempts(int(found[1]), found[2] is not None, found[3] is not None)


class Note(NamedTuple):
    """What is committed of one partition."""

    offset: int
    attempts: Attempts


class Notes:
    """What is under way, and what the group took last. Owned by `KafkaOffsets`."""

    def __init__(self, consumer: Consumer, clock: Callable[[], float]) -> None:
        self._consumer = consumer
        self._clock = clock
        self._under_way: dict[Partition, tuple[Note, float]] = {}  # and when it is taken for lost
        self._without_result: Counter[Partition] = Counter()  # also those of earlier assignments
        self._taken: dict[Partition, Note] = {}
        self._not_before: dict[Partition, float] = {}

    def send(self, partition: Partition, note: Note) -> None:
        """Begin an asynchronous commit; never raises."""
        position = TopicPartition(*partition, note.offset, str(note.attempts))
        try:
            self._consumer.commit(offsets=[position], asynchronous=True)
        except (KafkaException, RuntimeError):  # it never left
            self._not_before[partition] = self._clock() + RETRY_AFTER
        else:
            self._under_way[partition] = note, self._clock() + PATIENCE
            self._without_result[partition] += 1

    def note(self, partition: Partition, note: Note) -> bool:
        """Commit this, again after a failure. To be called until the group has taken it: True."""
        if self._taken.get(partition) == note:
            return True
        if not self.is_under_way([partition]) and self._clock() >= self._not_before.get(partition, 0.0):
            self.send(partition, note)
        return False

    def heard(self, partition: Partition, note: Note, *, is_taken: bool) -> None:
        """A result came. The last one sent decides, for an earlier one may look just like it."""
        self._without_result[partition] -= 1
        if self._without_result[partition] > 0 or self._under_way.pop(partition, (None,))[0] != note:
            return
        if is_taken:
            self._taken[partition] = note
        else:
            self._not_before[partition] = self._clock() + RETRY_AFTER

    def is_under_way(self, partitions: Collection[Partition]) -> bool:
        """Whether one of these has a note without a result, which may still arrive."""
        if not self._under_way:
            return False
        now = self._clock()
        return any(p in self._under_way and now < self._under_way[p][1] for p in partitions)

    def forget(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            for of in (self._under_way, self._taken, self._not_before):
                of.pop(partition, None)

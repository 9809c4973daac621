"""One consumer group, as its coordinator keeps it: members, committed offsets, pending offsets.

A member may commit only with its own epoch; the coordinator does not check that the partition is the member's. An
offset in a transaction is pending until the transaction's marker reaches the offsets topic. The offset appended last
counts: a plain commit in between makes the marker drop the pending one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from tests.properties.simulation.log import Transaction, Verdict
from worker.core.records import Partition

STALE = "stale member epoch"
UNKNOWN = "unknown member"


class Committed(NamedTuple):
    """An offset; `appended` orders it in the offsets topic."""

    offset: int
    appended: int


@dataclass
class Member:
    """One member as the coordinator sees it; a partition is `held` until the member says that it let go."""

    epoch: int
    held: set[Partition] = field(default_factory=set)


Told = Callable[[Partition, Committed, Transaction | None], None]
Dropped = Callable[[Partition, Committed, Transaction], None]


class Group:
    """Owned by the broker. `told` hears of every newly committed offset, `dropped` of every lost one."""

    def __init__(self, told: Told, dropped: Dropped) -> None:
        self._told = told
        self._dropped = dropped
        self._appended = count(1)
        self._pending: dict[Transaction, dict[Partition, Committed]] = {}
        self.members: dict[str, Member] = {}
        self.changes = 0  # of members, their partitions and the target
        self.epoch = 0
        self.target: dict[Partition, str] = {}  # the wanted owner of each partition
        self.bouncing: dict[str, set[Partition]] = {}  # to be revoked and given back within one poll
        self.committed: dict[Partition, Committed] = {}

    # Members

    def join(self, name: str) -> int:
        """Add a member, perhaps again after it was expelled. Returns the member's epoch."""
        self._changed()
        self.members[name] = Member(self.epoch)
        return self.epoch

    def rejoin(self, name: str) -> int:
        """Add a member that gave itself up, by its old name. Its epoch is the group's, perhaps still its old one."""
        self.changes += 1
        self.members[name] = Member(self.epoch)
        return self.epoch

    def leave(self, name: str) -> None:
        """Remove a member that left or fell silent: its epoch no longer counts."""
        if self.members.pop(name, None) is not None:
            self._changed()

    def assign(self, target: Mapping[Partition, str]) -> None:
        """Set the wanted owners; members learn of it one by one."""
        self.target = dict(target)
        self._changed()

    def bounce(self, name: str, partitions: Iterable[Partition]) -> None:
        """Take partitions from a member and give them back at once."""
        self.bouncing.setdefault(name, set()).update(partitions)
        self._changed()

    def heartbeat(self, name: str, epoch: int, let_go: Iterable[Partition]) -> int | str:
        """A member reports partitions that it let go, and learns the group's epoch."""
        if (refused := self._refused(name, epoch)) is not None:
            return refused
        self.changes += 1
        member = self.members[name]
        member.held.difference_update(let_go)
        member.epoch = self.epoch
        return self.epoch

    def take(self, name: str) -> set[Partition]:
        """Give a member its wanted partitions that nobody holds, and return them."""
        taken = {p for member in self.members.values() for p in member.held}
        free = {p for p, whose in self.target.items() if whose == name and p not in taken}
        self.members[name].held |= free
        return free

    def _changed(self) -> None:
        self.changes += 1
        self.epoch += 1

    # Offsets

    def commit(self, name: str, epoch: int, offsets: Mapping[Partition, int]) -> str | None:
        """Commit outside of transactions. Returns why it is refused, None when it is taken."""
        if (refused := self._refused(name, epoch)) is not None:
            return refused
        for partition, offset in offsets.items():
            self._take_over(partition, Committed(offset, next(self._appended)), None)
        return None

    def pend(self, transaction: Transaction, name: str, epoch: int, offsets: Mapping[Partition, int]) -> str | None:
        """Keep offsets until their transaction is committed. Returns why they are refused."""
        if (refused := self._refused(name, epoch)) is not None:
            return refused
        transaction.offsets.update(offsets)
        pending = self._pending.setdefault(transaction, {})
        pending.update({p: Committed(offset, next(self._appended)) for p, offset in offsets.items()})
        return None

    def mark(self, transaction: Transaction) -> None:
        """The end of a transaction reaches the offsets topic."""
        for partition, pending in self._pending.pop(transaction, {}).items():
            if transaction.verdict is not Verdict.COMMITTED:
                continue
            if (newer := self.committed.get(partition)) is not None and newer.appended > pending.appended:
                self._dropped(partition, newer, transaction)
            else:
                self._take_over(partition, pending, transaction)

    def is_unstable(self, partition: Partition) -> bool:
        """True if a reader of stable offsets has to wait."""
        return any(partition in pending for pending in self._pending.values())

    def _take_over(self, partition: Partition, committed: Committed, transaction: Transaction | None) -> None:
        self.committed[partition] = committed
        self._told(partition, committed, transaction)

    def _refused(self, name: str, epoch: int) -> str | None:
        member = self.members.get(name)
        if member is None:
            return UNKNOWN
        return None if member.epoch == epoch else STALE

    def __repr__(self) -> str:
        return f"<Group epoch={self.epoch} {self.members} {self.committed}>"

"""All that outlives a process: request logs, output logs, transactional ids and their coordinator, the group.

A transactional id belongs to the process that initialised it last: each initialisation raises the epoch, aborts the
open transaction, and fences processes with an older epoch. A transaction that stays open too long is swept. A
transaction's end is decided at one instant and reaches the partitions one after another; until it has reached all of
them the id takes nothing new. In some transactions the answers come first, in others the offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.fakes import CHANGELOG
from tests.properties.simulation.group import Committed, Group
from tests.properties.simulation.log import OutputLog, Transaction, Verdict
from tests.properties.simulation.process import World
from worker.core.records import Message, Partition, Record

FENCED = "fenced"  # the id was initialised again, or its transaction stayed open too long: the reason is not told
BUSY = "the end of the last transaction is still being written"
NOTHING_OPEN = "no transaction is open"

MARKER_SECONDS = 0.0007  # from the verdict to the first marker, and from one marker to the next


class Watcher(Protocol):
    """Hears of every change that others can see, at that instant."""

    def answered(self, message: Message) -> None: ...
    def refused(self, message: Message) -> None: ...
    def decided(self, transaction: Transaction) -> None: ...
    def readable(self, log: OutputLog, message: Message) -> None: ...
    def committed(self, partition: Partition, committed: Committed, transaction: Transaction | None) -> None: ...
    def dropped(self, partition: Partition, kept: Committed, transaction: Transaction) -> None: ...


@dataclass
class TransactionalId:
    """The coordinator's entry for one id."""

    epoch: int = 0
    timeout: float = 10.0
    current: Transaction | None = None  # open, or its markers are on their way


class SimBroker:
    """A cluster that is always there. Output topics have `partitions` each."""

    def __init__(self, world: World, partitions: int = 2) -> None:
        self._world = world
        self._clock = world.clock
        self._partitions = partitions
        self._ids: dict[str, TransactionalId] = {}
        self._decided = 0
        self.watcher: Watcher | None = None
        self.requests: dict[Partition, list[Record]] = {}
        self.markers: dict[Partition, set[int]] = {}  # of transactions in the request logs; they are no records
        self.outputs: dict[tuple[str, int], OutputLog] = {}
        self.group = Group(self._committed, self._dropped)

    # Requests

    def publish(self, *records: Record) -> None:
        """Append records. Offsets of a partition must grow; gaps are like those of a compacted topic."""
        for record in records:
            log = self.requests.setdefault(record.partition, [])
            assert record.offset >= (log[-1].offset + 1 if log else 0)
            log.append(record)

    def past_markers(self, partition: Partition, offset: int) -> int:
        """The position of a reader that came to this offset: it goes past markers."""
        while offset in self.markers.get(partition, ()):
            offset += 1
        return offset

    def end(self, partition: Partition) -> int:
        log = self.requests.get(partition)
        return log[-1].offset + 1 if log else 0

    # Answers

    def output(self, message: Message) -> OutputLog:
        """The log for a message: as its requester chose, else by its key, else by the request's partition.

        States lie in the partition of their requests.
        """
        number = (sum(message.key) if message.key else message.source_partition) % self._partitions
        number = number if message.partition is None else message.partition
        number = message.source_partition if message.topic == CHANGELOG else number
        key = message.topic, number
        return self.outputs.get(key) or self.outputs.setdefault(key, OutputLog(*key))

    def produce(self, message: Message) -> None:
        """Append outside of transactions: durable at once, and readable unless an open transaction lies before."""
        log = self.output(message)
        log.append(message)
        self._watch().answered(message)
        self._read_on(log)

    def refuse(self, message: Message, reason: str) -> str:
        """Refuse a message for good; later ones may be taken."""
        self._watch().refused(message)
        return reason

    # Transactions

    def initialise(self, transactional_id: str, timeout: float) -> int | str:
        """Returns the new epoch, or `BUSY`: ask again."""
        entry = self._ids.setdefault(transactional_id, TransactionalId())
        if entry.current is not None:
            if entry.current.verdict is Verdict.OPEN:
                entry.epoch += 1
                self._decide(entry, Verdict.ABORTED)
            return BUSY
        entry.epoch += 1
        entry.timeout = timeout
        return entry.epoch

    def open(self, transactional_id: str, epoch: int) -> str | None:
        """Open a transaction before its first message. Returns why not: `BUSY` while the last one is being ended."""
        entry = self._ids[transactional_id]
        if (refused := self._refused(entry, epoch)) is None:
            self._open(transactional_id, entry)
        return refused

    def write(self, transactional_id: str, epoch: int, message: Message) -> str | None:
        """Append one message to the open transaction. Returns why not."""
        entry = self._ids[transactional_id]
        if (refused := self._refused(entry, epoch)) is not None:
            return refused
        transaction = entry.current
        assert transaction is not None
        transaction.messages.append(message)
        self.output(message).append(message, transaction)
        return None

    def write_offsets(
        self, transactional_id: str, epoch: int, member: tuple[str, int], offsets: dict[Partition, int]
    ) -> str | None:
        """Add next offsets to the open transaction. Returns why not, such as a group that fences the member off."""
        entry = self._ids[transactional_id]
        if (refused := self._refused(entry, epoch)) is not None:
            return refused
        return self.group.pend(self._open(transactional_id, entry), *member, offsets)

    def end_transaction(self, transactional_id: str, epoch: int, verdict: Verdict) -> str | None:
        """End the open transaction. Returns why not. The end is certain at once, and readable a moment later."""
        entry = self._ids[transactional_id]
        if (refused := self._refused(entry, epoch)) is not None:
            return refused
        if entry.current is None:
            return NOTHING_OPEN
        self._decide(entry, verdict)
        return None

    @property
    def is_quiet(self) -> bool:
        """True if no transaction is open or being ended."""
        return all(entry.current is None for entry in self._ids.values())

    def _refused(self, entry: TransactionalId, epoch: int) -> str | None:
        if entry.epoch != epoch:
            return FENCED
        return BUSY if entry.current is not None and entry.current.verdict is not Verdict.OPEN else None

    def _open(self, transactional_id: str, entry: TransactionalId) -> Transaction:
        if entry.current is None:
            entry.current = transaction = Transaction(transactional_id, self._clock.now)
            self._clock.at(self._clock.now + entry.timeout, lambda: self._sweep(entry, transaction))
        return entry.current

    def _sweep(self, entry: TransactionalId, transaction: Transaction) -> None:
        if transaction.verdict is Verdict.OPEN:
            self._world.note("coordinator", f"sweeps {transaction}")
            entry.epoch += 1
            self._decide(entry, Verdict.ABORTED)

    def _decide(self, entry: TransactionalId, verdict: Verdict) -> None:
        transaction = entry.current
        assert transaction is not None
        transaction.verdict = verdict
        self._world.changes += 1
        self._world.note("coordinator", f"decides {transaction}")
        self._watch().decided(transaction)
        ends: list[Callable[[], None]] = [lambda log=log: self._mark(log, transaction) for log in transaction.logs]  # type: ignore[misc]
        self._decided += 1
        ends.insert(0 if self._decided % 2 else len(ends), lambda: self.group.mark(transaction))
        ends.append(lambda: self._complete(entry))
        for number, end in enumerate(ends):
            self._clock.at(self._clock.now + MARKER_SECONDS * (number + 1), end)

    def _mark(self, log: OutputLog, transaction: Transaction) -> None:
        self._world.changes += 1
        log.mark(transaction)
        self._read_on(log)

    def _complete(self, entry: TransactionalId) -> None:
        self._world.changes += 1
        entry.current = None

    # The view of others

    def _read_on(self, log: OutputLog) -> None:
        for message in log.read_on():
            self._watch().readable(log, message)

    def _committed(self, partition: Partition, committed: Committed, transaction: Transaction | None) -> None:
        self._world.note("group", f"{partition} is committed up to {committed.offset}")
        self._watch().committed(partition, committed, transaction)

    def _dropped(self, partition: Partition, kept: Committed, transaction: Transaction) -> None:
        self._world.note("group", f"{partition} keeps {kept} and drops what came in {transaction}")
        self._watch().dropped(partition, kept, transaction)

    def _watch(self) -> Watcher:
        assert self.watcher is not None
        return self.watcher

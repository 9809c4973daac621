"""One partition of an output topic, as a broker keeps it.

    │ 0 answer │ 1 answer of T │ 2 answer │ 3 answer of U │ 4 commit T │ …
                                            ▲ last stable offset while U is open

A reader of committed data gets nothing at or past the first record of an open transaction, and skips records of aborted
ones. Markers take offsets, so a reader sees gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from worker.core.records import Message, Partition


class Verdict(Enum):
    """How a transaction ended."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    """One producer's messages between two ends, and the offsets that come with them."""

    def __init__(self, transactional_id: str, began: float) -> None:
        self.transactional_id = transactional_id
        self.began = began
        self.verdict = Verdict.OPEN
        self.messages: list[Message] = []
        self.logs: list[OutputLog] = []
        self.offsets: dict[Partition, int] = {}  # accepted by the group, pending until the end

    def __repr__(self) -> str:
        return f"<Transaction {self.transactional_id} {self.verdict.value} {len(self.messages)} {self.offsets}>"


class Entry(NamedTuple):
    """One entry of the log; a marker has no message, an answer outside of transactions has no transaction."""

    message: Message | None
    transaction: Transaction | None


class OutputLog:
    """Entries in the order appended, and the transactions without a marker here yet."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self.entries: list[Entry] = []
        self._first_of: dict[Transaction, int] = {}  # of transactions without a marker: their first offset
        self._read_to = 0  # by the reader that follows the log

    def append(self, message: Message, transaction: Transaction | None = None) -> None:
        if transaction is not None and transaction not in self._first_of:
            self._first_of[transaction] = len(self.entries)
            transaction.logs.append(self)
        self.entries.append(Entry(message, transaction))

    def mark(self, transaction: Transaction) -> None:
        """The end of a transaction reaches this partition."""
        assert transaction.verdict is not Verdict.OPEN
        del self._first_of[transaction]
        self.entries.append(Entry(None, transaction))

    @property
    def last_stable_offset(self) -> int:
        return min(self._first_of.values(), default=len(self.entries))

    def committed_before(self, end: int) -> Sequence[Message]:
        """The messages that a new reader gets. All before `end` is stable."""
        return [message for message, of in self.entries[:end] if message is not None and _is_committed(of)]

    def read_on(self) -> Sequence[Message]:
        """The messages that became readable since the last call, under `read_committed`."""
        stable = self.entries[self._read_to : self.last_stable_offset]
        self._read_to += len(stable)
        return [message for message, of in stable if message is not None and _is_committed(of)]

    def __repr__(self) -> str:
        return f"<OutputLog {self.topic}/{self.number} end={len(self.entries)} stable={self.last_stable_offset}>"


def _is_committed(transaction: Transaction | None) -> bool:
    return transaction is None or transaction.verdict is Verdict.COMMITTED

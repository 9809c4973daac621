"""The promises that must hold whenever something changes for others, and at the end.

| | at least once | exactly once |
|---|---|---|
| a commit | never goes back, passes no record without a durable answer | moves only with the answers it covers |
| an answer | comes, maybe again | is committed once, with all others below the offset of its transaction |
| order of one partition's answers in one of the output's | of first occurrences | of the whole sequence |
| an answer's value, a rejection's dead letter | right; there before the commit | right; in the same transaction |
| an error that names a host's end | for a killer, or one that ran alone when its host was killed | likewise |
| a state | is there before the commit; ends as in a serial replay | likewise |
| a state in an outside store | says that its request, and all earlier ones of its key, are answered | |

With less `order` only the answers of one key are in order, or none. The checker sees only what a reader of Kafka sees,
and nothing of the worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tests.builders import ENDED, FAULTY, HANGING, KILLER, NONSENSE, POISON, SHORT
from tests.fakes import CHANGELOG
from tests.properties.simulation.broker import SimBroker
from tests.properties.simulation.group import Committed
from tests.properties.simulation.log import OutputLog, Transaction, Verdict
from tests.properties.simulation.process import World
from tests.properties.simulation.replica import Setup
from worker.core.chunk import Batch
from worker.core.records import Message, Partition, Record

SILENT = b"skip"
SOURCE = 8  # bytes that a store's value has before the changelog's value
OFFSET = slice(8, 16)  # the bytes of a changelog's value with the offset of the request that wrote it
Position = tuple[Partition, int]


class Broken(AssertionError):
    """A promise was broken; the message says which, with the history."""


def right_answer(value: bytes | None) -> bytes | None:
    """The rows that answer this value; None where only an error is right."""
    if not value or len(value) % 4 or value == SILENT:
        return None
    rows = np.frombuffer(value, "<f4")
    if not np.isfinite(rows).all() or np.isin(rows, [POISON, FAULTY, NONSENSE, SHORT, KILLER, HANGING]).any():
        return None
    return (rows * 2).tobytes()


def is_killer(value: bytes | None) -> bool:
    """True if it ends the host of the model, whatever runs with it."""
    is_request = bool(value) and len(value or b"") % 4 == 0
    return is_request and bool(np.isin(np.frombuffer(value or b"", "<f4"), [KILLER, HANGING]).any())


class State(NamedTuple):
    """The state that a request leaves to the next one of its key."""

    offset: int
    total: float


class Checker:
    """Watches the broker. Raises `Broken` in the very step that breaks a promise."""

    def __init__(self, world: World, broker: SimBroker, setup: Setup) -> None:
        self._world = world
        self._broker = broker
        self._is_exact = setup.is_exact
        self._order = setup.order
        self._memory = setup.memory
        self._states: dict[bytes, State] = {}  # durable: the latest request's of each key; exactly once the last
        self._without_some: set[bytes] = set()  # keys with a refused state; later states may have been taken
        self._answers: Counter[Position] = Counter()  # durable: acknowledged, or committed
        self._letters: Counter[Position] = Counter()
        self._errors: set[Position] = set()
        self._decided: dict[Partition, int] = {}  # the next offsets of committed transactions
        self._last_read: dict[Hashable, int] = {}
        self._records: dict[Position, Record] = {}
        self._stood: dict[Partition, int] = {}  # the group's offsets
        self._excused: set[Position] = set()
        self.killers: set[Position] = set()  # answered with an error that names the end of the model's host
        self._unlucky: set[Position] = set()  # ran alone when the host was killed from outside
        self.reads = 0

    # Told by the broker

    def answered(self, message: Message) -> None:
        """A message became durable outside of transactions."""
        self._require(not self._is_exact, f"{message} was written outside of a transaction")
        self._count(message)

    def stored(self, key: bytes, value: bytes) -> None:
        """An outside store has this value for a key."""
        state = self._kept(key, value[SOURCE:])
        for record in self._of_key(key):
            if record.offset <= state.offset:
                self._require_answer(record, f"the store has {state} of {key!r}")

    def refused(self, message: Message) -> None:
        """A message was refused for good: later ones may land before it, out of order after the restart."""
        if message.topic == CHANGELOG:
            self._without_some.add(message.key or b"")
        else:
            self._excused.add(self._position(message))

    def was_killed(self, running: Sequence[Batch]) -> None:
        """A host was killed from outside, with these batches. A record that ran alone may be taken for the killer."""
        chunks = [batch.chunks[0] for batch in running if batch.is_alone]
        self._unlucky |= {(chunk.partition, chunk.records[0].offset) for chunk in chunks}

    def decided(self, transaction: Transaction) -> None:
        """The end of a transaction, and thus its content, is certain."""
        if transaction.verdict is not Verdict.COMMITTED:
            return
        self._require(self._is_exact, "a transaction under at least once")
        inside: Counter[Position] = Counter()
        for message in transaction.messages:
            self._count(message)
            if message.topic == "responses":
                inside[self._position(message)] += 1
        for position in inside:
            self._require(
                self._answers[position] == 1, f"{_name(position)} is answered {self._answers[position]} times"
            )
        for partition, offset in inside:
            self._require(
                offset < transaction.offsets.get(partition, -1), f"{partition}/{offset} is not covered by {transaction}"
            )
        for partition, offset in transaction.offsets.items():
            self._require(
                self._decided.get(partition, -1) < offset, f"{partition} goes back to {offset} in {transaction}"
            )
            self._decided[partition] = offset
            self._all_answered_below(partition, offset)

    def readable(self, log: OutputLog, message: Message) -> None:
        """A reader of committed data got this message."""
        if message.topic == CHANGELOG:
            return
        self.reads += 1
        partition, offset = self._position(message)
        line = log.topic, log.number, partition, self._order_line(message, offset)
        last = self._last_read.get(line, -1)
        if offset > last:
            self._last_read[line] = offset
        elif self._is_exact:
            raise self._broken(f"{partition}/{offset} is read after {last}")
        elif (partition, offset) not in self._excused | self._unlucky:
            if message.key in self._without_some:  # the state before it may be lost: then it gets an error this time
                return
            times = (self._letters if log.topic == "dead-letters" else self._answers)[partition, offset]
            self._require(times > 1, f"{partition}/{offset} is answered for the first time after {last}")

    def _order_line(self, message: Message, offset: int) -> Hashable:
        """Names, within a partition, the answers whose order is promised."""
        if self._order == "partition":
            return None
        return message.key if self._order == "key" and message.key is not None else offset

    def committed(self, partition: Partition, committed: Committed, transaction: Transaction | None) -> None:
        """The group's offset changed."""
        if self._is_exact and transaction is None:
            stood = self._decided.get(partition, 0)
            self._require(
                committed.offset >= stood and not self._owed(partition, stood, committed.offset),
                f"{partition} is committed at {committed.offset} outside of a transaction, and stood at {stood}",
            )
        self._require(committed.offset >= self._stood.get(partition, 0), f"{partition} goes back to {committed.offset}")
        self._stood[partition] = committed.offset
        self._all_answered_below(partition, committed.offset)

    def dropped(self, partition: Partition, kept: Committed, transaction: Transaction) -> None:
        """A later commit replaced a committed transaction's offset; it may not go back before it."""
        self._require(
            kept.offset >= transaction.offsets[partition], f"{partition} stays at {kept}, and {transaction} is undone"
        )

    # Asked by the test

    @property
    def is_all_answered(self) -> bool:
        """True if every record is answered, and the group is behind each partition's last record and markers."""
        committed = self._broker.group.committed
        return all(
            partition in committed
            and committed[partition].offset >= self._broker.past_markers(partition, log[-1].offset + 1)
            for partition, log in self._broker.requests.items()
            if log
        )

    def require_killers(self, expected: Collection[Position]) -> None:
        """Raise `Broken` unless exactly these were answered as killers."""
        wrong = self.killers ^ set(expected)
        self._require(not wrong, f"killers were {self.killers}, not {set(expected)}")

    def finish(self) -> None:
        """Judge the world when it has come to rest."""
        for partition, log in self._broker.requests.items():
            self._require(bool(log), f"{partition} is empty")
            self._all_answered_below(partition, log[-1].offset + 1)
            if self._memory is not None:
                self._require_last_states(log)
        answers = sum(self._answers.values()) + sum(self._letters.values())
        self._require(self.reads == answers, f"{answers} messages are durable, {self.reads} readable")

    # Judging

    def _count(self, message: Message) -> None:
        if message.topic == CHANGELOG:
            self._kept(message.key or b"", message.value or b"")
            return
        position = self._position(message)
        record = self._record(position)
        self._require(message.key == record.key, f"{_name(position)} has the key {message.key!r}")
        if message.topic == "dead-letters":
            self._letters[position] += 1
            self._require(message.value == record.value, f"{_name(position)} is dead-lettered with {message.value!r}")
            self._require(self._may_be_refused(record), f"{_name(position)} is dead-lettered")
            return
        self._answers[position] += 1
        if dict(message.headers)["status"] == b"ok":
            is_right = message.value in self._right(record) or record.key in self._without_some
            self._require(is_right, f"{_name(position)} is answered {message.value!r}")
            return
        self._errors.add(position)
        self._require(self._may_be_refused(record), f"{_name(position)} is answered by an error: {message.value!r}")
        if ENDED.encode() in (message.value or b""):
            self.killers.add(position)
            may_be_blamed = is_killer(record.value) or position in self._unlucky
            self._require(may_be_blamed, f"{_name(position)} is blamed for the end of a host: {message.value!r}")

    def _may_be_refused(self, record: Record) -> bool:
        is_unlucky = (record.partition, record.offset) in self._unlucky
        return right_answer(record.value) is None or is_unlucky or record.key in self._without_some

    def _all_answered_below(self, partition: Partition, offset: int) -> None:
        most = 1 if self._is_exact else None
        for record in self._broker.requests.get(partition, ()):
            if record.offset >= offset:
                return
            if record.value == SILENT:
                continue
            position = partition, record.offset
            answers, letters = self._answers[position], self._letters[position]
            self._require_answer(record, f"{partition} is committed up to {offset}")
            self._require(most is None or answers == most, f"{_name(position)} is answered {answers} times")
            if position in self._errors:
                self._require(most is None or letters == most, f"{_name(position)} has {letters} dead letters")
            elif self._memory is not None:
                state = self._states.get(record.key or b"")
                self._require(
                    state is not None and state.offset >= record.offset,
                    f"{partition} is committed up to {offset}, and {record.offset} is not in {state}",
                )

    def _require_answer(self, record: Record, why: str) -> None:
        """Raise `Broken` unless its answer is durable, and for an error its dead letter, too."""
        position = record.partition, record.offset
        if record.value == SILENT:
            return
        self._require(self._answers[position] >= 1, f"{why}, and {_name(position)} is not answered")
        if position in self._errors:
            self._require(self._letters[position] >= 1, f"{why}, and {_name(position)} has no dead letter")

    # With state

    def _kept(self, key: bytes, value: bytes) -> State:
        """Keep a request's durable state. At least once a zombie may write an older one behind it."""
        state = State(int.from_bytes(value[OFFSET], "little"), float(np.frombuffer(value[-4:], "<f4")[0]))
        before = self._states.get(key)
        if before is None or self._is_exact or state.offset >= before.offset:
            self._states[key] = state
        return state

    def _require_last_states(self, log: Sequence[Record]) -> None:
        for key, record in {record.key or b"": record for record in log if right_answer(record.value)}.items():
            sums, state = self._sums(record, with_it=True), self._states.get(key)
            is_right = (0.0 if state is None else state.total) in sums or key in self._without_some
            self._require(is_right, f"{key!r} ends with {state}, not with one of {sums}")

    def _right(self, record: Record) -> set[bytes | None]:
        """The right answers to a record; None where only an error is right."""
        right = right_answer(record.value)
        if self._memory is None or right is None:
            return {right}
        rows = np.frombuffer(record.value or b"", "<f4")
        return {(np.cumsum(rows) + total).astype("<f4").tobytes() for total in self._sums(record)}

    def _sums(self, record: Record, *, with_it: bool = False) -> set[float]:
        """The possible states of its key before a record. An unlucky one may have been applied, or refused."""
        sums = {0.0}
        for one in self._of_key(record.key or b""):
            if one.offset >= record.offset + with_it:
                break
            if right_answer(one.value):
                added = float(np.frombuffer(one.value or b"", "<f4").sum())
                applied = {total + added for total in sums}
                sums = sums | applied if (one.partition, one.offset) in self._unlucky else applied
        return sums

    def _of_key(self, key: bytes) -> Iterator[Record]:
        """A key's records. With state all lie in one partition."""
        return (record for log in self._broker.requests.values() for record in log if record.key == key)

    def _owed(self, partition: Partition, start: int, end: int) -> bool:
        return any(start <= record.offset < end for record in self._broker.requests.get(partition, ()))

    def _position(self, message: Message) -> Position:
        topic, number, offset = (dict(message.headers)["source"] or b"").decode().split("/")
        return Partition(topic, int(number)), int(offset)

    def _record(self, position: Position) -> Record:
        found = self._records.get(position)
        if found is None:
            partition, offset = position
            found = next(r for r in self._broker.requests[partition] if r.offset == offset)
            self._records[position] = found
        return found

    def _require(self, holds: bool, message: str) -> None:  # noqa: FBT001  # a sentence that must be true
        if not holds:
            raise self._broken(message)

    def _broken(self, message: str) -> Broken:
        return Broken(message + "\n" + "\n".join(self._world.history[-60:]))


def _name(position: Position) -> str:
    return f"{position[0]}/{position[1]}"

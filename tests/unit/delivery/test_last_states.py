"""The changelog gets only a transaction's last state of each key, when the transaction ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tests.builders import P0, P1, STATE
from worker.core.records import Ending, Line, Message, Partition, Place
from worker.core.runs import MessageRun, fields_of
from worker.delivery.last_states import LastStates
from worker.state.changes import Concluded

STATES = "states"
ANSWER = [Message("responses", b"k", b"answer", [], 0, None)]


class SentTransactions:
    """Remembers the messages in the open transaction, and the committed ones."""

    def __init__(self) -> None:
        self.open: list[Message] = []
        self.committed: list[Message] = []

    def begin(self) -> None:
        pass

    def send(self, messages: Sequence[Message], place: Place) -> None:
        assert messages[0].partition in {None, place.line.partition.number}
        self.open += [Message(*fields[:3], fields[3] or [], *fields[4:]) for fields in fields_of(messages)]

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        assert offsets
        self.committed += self.open
        self.open = []

    def abort(self) -> None:
        self.open = []

    def ended(self, timeout: float) -> Ending | None:
        raise AssertionError(timeout)

    def serve(self, timeout: float) -> None:
        raise AssertionError(timeout)


class Transaction:
    """A transaction under way; `sends` sends the messages of one place."""

    def __init__(self) -> None:
        self.inner = SentTransactions()
        self.outer = LastStates(self.inner)
        self.offset = 0
        self.lines = {partition: Line(partition) for partition in (P0, P1)}

    def sends(self, *changes: Sequence[Message], partition: Partition = P0) -> None:
        self.offset += 1
        place = Place(self.lines[partition], self.offset, 1, 1, 0.0)
        self.outer.send(Concluded((ANSWER, *changes)) if changes else ANSWER, place)

    def commit(self) -> list[tuple[bytes | None, float | None]]:
        """The changelog's records: keys with the values of their states, None for a forgotten key."""
        self.outer.commit({P0: self.offset + 1})
        return [(m.key, None if m.value is None else value_of(m.value)) for m in self.changes]

    @property
    def changes(self) -> list[Message]:
        return [m for m in self.inner.committed if m.topic == STATES]


@pytest.fixture
def transaction() -> Transaction:
    return Transaction()


def state(number: float, *, first: bool = False) -> bytes:
    ones = np.ones(1, np.int64)
    (value,) = STATE.written(ones, ones, ones * first, [np.full((1, 1), number, "<f4")])
    return value


def value_of(value: bytes) -> float:
    return float(STATE.tensors_of(STATE.read([value]))[0][0, 0])


def run(states: Mapping[bytes, bytes], number: int = 0) -> MessageRun:
    return MessageRun(STATES, [*states], [*states.values()], [None] * len(states), number, [number] * len(states))


def one(key: bytes, value: bytes) -> list[Message]:
    return [Message(STATES, key, value, [], 0, 0)]


def forgotten(key: bytes, offset: int) -> list[Message]:
    return [Message(STATES, key, None, [("offset", b"%d" % offset)], 0, 0)]


def firsts(transaction: Transaction) -> dict[bytes | None, bool]:
    return {m.key: bool(STATE.read([m.value])[0]["flags"]) for m in transaction.changes if m.value is not None}


def test_answers_leave_at_once_and_the_last_state_of_each_key_with_the_end(transaction: Transaction) -> None:
    """So a hot key costs the changelog one record per transaction."""
    transaction.sends(run({b"a": state(1), b"b": state(10)}))
    transaction.sends(one(b"a", state(2)))
    transaction.sends(run({b"c": state(20), b"a": state(3)}))
    assert transaction.inner.open == 3 * ANSWER

    assert dict(transaction.commit()) == {b"a": 3, b"b": 10, b"c": 20}
    assert len(transaction.changes) == 3


def test_a_key_of_each_partition_stays_in_its_own(transaction: Transaction) -> None:
    """A key may have a state in two partitions."""
    transaction.sends(run({b"a": state(1)}))
    transaction.sends(run({b"a": state(2)}, number=1), partition=P1)
    transaction.commit()

    assert [(m.key, m.partition, value_of(m.value or b"")) for m in transaction.changes] == [
        (b"a", 0, 1),
        (b"a", 1, 2),
    ]


def test_what_is_forgotten_last_says_by_which_request(transaction: Transaction) -> None:
    """A key that is forgotten and written again has its state."""
    transaction.sends(one(b"a", state(1)))
    transaction.sends(forgotten(b"a", 7))
    transaction.sends(forgotten(b"b", 8), one(b"b", state(2)))

    assert dict(transaction.commit()) == {b"a": None, b"b": 2}
    assert {m.key: m.headers for m in transaction.changes} == {b"a": [("offset", b"7")], b"b": []}


def test_a_key_had_no_state_before_if_its_first_write_says_so(transaction: Transaction) -> None:
    """The last write does not count: one after a deletion in that transaction had a state before."""
    transaction.sends(run({b"new": state(1, first=True), b"old": state(1)}))
    transaction.sends(run({b"new": state(2), b"old": state(2)}))
    transaction.sends(forgotten(b"back", 3))
    transaction.sends(one(b"back", state(3, first=True)))

    assert dict(transaction.commit()) == {b"new": 2, b"old": 2, b"back": 3}
    assert firsts(transaction) == {b"new": True, b"old": False, b"back": False}


def test_what_was_taken_back_is_in_no_later_transaction(transaction: Transaction) -> None:
    """Its requests are read again."""
    transaction.sends(one(b"a", state(1)))
    transaction.outer.abort()
    transaction.sends(one(b"b", state(2)))
    assert transaction.commit() == [(b"b", 2)]

    transaction.sends()
    assert transaction.commit() == [(b"b", 2)]

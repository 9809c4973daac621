"""States leave with their answers: each at least once, the last of each key in a transaction exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.chunks import P0, P1
from tests.fakes import CHANGELOG
from tests.states import number_of, state
from worker.core.ordering.ledger import Line, Places, Stretch
from worker.core.records import Ending, Fields, Partition
from worker.delivery.last_states import LONGEST_WAIT, MOST_WAITING, EachState, LastStates
from worker.state.changes import forgotten
from worker.state.layout import is_first

ANSWER: Fields = ("responses", b"k", b"answer", None, 0, None)


class SentTransactions:
    """Remembers the messages in the open transaction, and the committed ones."""

    def __init__(self) -> None:
        self.open: list[Fields] = []
        self.committed: list[Fields] = []

    def begin(self) -> None:
        pass

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        assert messages[0][5] in {None, stretch.partition.number}
        self.open += messages

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


class Leaving:
    """Says which states leave with an answer; `stretch` makes one that leaves some."""

    def __init__(self) -> None:
        self.states: dict[Stretch, list[Fields]] = {}
        self.lines = {partition: Line(partition) for partition in (P0, P1)}
        self.offset = 0

    def leave(self, stretch: Stretch) -> list[Fields]:
        return self.states.pop(stretch, [])

    def stretch(self, *states: Fields, partition: Partition = P0) -> Stretch:
        self.offset += 1
        places = Places(self.lines[partition], [self.offset], [1], [1], [None], 0.0)
        stretch = Stretch(places, 0, 1)
        self.states[stretch] = list(states)
        return stretch


class Transaction:
    """A transaction under way; `sends` sends an answer, and the states that it leaves behind."""

    def __init__(self) -> None:
        self.inner = SentTransactions()
        self.leaving = Leaving()
        self.outer = LastStates(self.inner, self.leaving.leave)

    def sends(self, *states: Fields, partition: Partition = P0) -> None:
        self.outer.send([ANSWER], self.leaving.stretch(*states, partition=partition))

    def commit(self) -> list[tuple[bytes | None, float | None]]:
        """The changelog's records: keys with their states, None for a forgotten key."""
        self.outer.commit({P0: self.leaving.offset + 1})
        return [(key, None if value is None else number_of(value)) for _, key, value, *_ in self.changes]

    @property
    def changes(self) -> list[Fields]:
        return [message for message in self.inner.committed if message[0] == CHANGELOG]


@pytest.fixture
def transaction() -> Transaction:
    return Transaction()


def of(key: bytes, number: float, *, first: bool = False, home: int = 0) -> Fields:
    return CHANGELOG, key, state(number, first=first), None, home, home


def gone(key: bytes, offset: int) -> Fields:
    return forgotten(CHANGELOG, 0, key, offset)


def firsts(transaction: Transaction) -> dict[bytes | None, bool]:
    return {key: is_first(value) for _, key, value, *_ in transaction.changes if value is not None}


def test_answers_leave_at_once_and_the_last_state_of_each_key_with_the_end(transaction: Transaction) -> None:
    """So a hot key costs the changelog one record per transaction."""
    transaction.sends(of(b"a", 1), of(b"b", 10))
    transaction.sends(of(b"a", 2))
    transaction.sends(of(b"c", 20), of(b"a", 3))
    assert transaction.inner.open == 3 * [ANSWER]

    assert dict(transaction.commit()) == {b"a": 3, b"b": 10, b"c": 20}
    assert len(transaction.changes) == 3


def test_a_key_of_each_partition_stays_in_its_own(transaction: Transaction) -> None:
    """A key may have a state in two partitions."""
    transaction.sends(of(b"a", 1))
    transaction.sends(of(b"a", 2, home=1), partition=P1)
    transaction.commit()

    assert [(key, home, number_of(value or b"")) for _, key, value, _, _, home in transaction.changes] == [
        (b"a", 0, 1),
        (b"a", 1, 2),
    ]


def test_what_is_forgotten_last_says_by_which_request(transaction: Transaction) -> None:
    """A key that is forgotten and written again has its state."""
    transaction.sends(of(b"a", 1))
    transaction.sends(gone(b"a", 7))
    transaction.sends(gone(b"b", 8), of(b"b", 2))

    assert dict(transaction.commit()) == {b"a": None, b"b": 2}
    assert {key: headers for _, key, _, headers, *_ in transaction.changes} == {b"a": [("offset", b"7")], b"b": None}


def test_a_key_had_no_state_before_if_its_first_write_says_so(transaction: Transaction) -> None:
    """The last write does not count: one after a deletion in that transaction had a state before."""
    transaction.sends(of(b"new", 1, first=True), of(b"old", 1), of(b"once", 1, first=True))
    transaction.sends(of(b"new", 2), of(b"old", 2))
    transaction.sends(gone(b"back", 3))
    transaction.sends(of(b"back", 3, first=True))

    assert dict(transaction.commit()) == {b"new": 2, b"old": 2, b"once": 1, b"back": 3}
    assert firsts(transaction) == {b"new": True, b"old": False, b"once": True, b"back": False}


def test_what_was_taken_back_is_in_no_later_transaction(transaction: Transaction) -> None:
    """Its requests are read again."""
    transaction.sends(of(b"a", 1))
    transaction.outer.abort()
    transaction.sends(of(b"b", 2))
    assert transaction.commit() == [(b"b", 2)]

    transaction.sends()
    assert transaction.commit() == [(b"b", 2)]


class Acknowledging:
    """A sink that acknowledges what it is told to: `due` are the places that its next polls return."""

    def __init__(self) -> None:
        self.sent: list[tuple[Sequence[Fields], Stretch]] = []
        self.due: list[Stretch] = []
        self.waits: list[float] = []
        self.pushed = 0

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        self.sent.append((messages, stretch))

    def poll(self, timeout: float) -> Sequence[Stretch]:
        self.waits.append(timeout)
        due, self.due = self.due, []
        return due

    def push(self) -> None:
        self.pushed += 1


class Waiting:
    """States that wait at least once, with a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.inner, self.leaving = Acknowledging(), Leaving()
        self.outer = EachState(self.inner, self.leaving.leave, lambda: self.now)

    def sends(self, *states: Fields, partition: Partition = P0) -> Stretch:
        stretch = self.leaving.stretch(*states, partition=partition)
        self.outer.send([ANSWER], stretch)
        return stretch

    @property
    def states(self) -> list[Fields]:
        return [message for messages, _ in self.inner.sent for message in messages if message[0] == CHANGELOG]


def test_at_least_once_every_state_goes_behind_its_answer() -> None:
    """They go together, in order, when no more answers are coming."""
    waiting = Waiting()
    waiting.sends(gone(b"b", 1), of(b"a", 1), of(b"a", 2))
    waiting.sends(of(b"a", 3))
    assert waiting.states == []

    waiting.outer.push()

    assert waiting.states == [gone(b"b", 1), of(b"a", 1), of(b"a", 2), of(b"a", 3)]
    assert waiting.inner.pushed == 1


def test_at_least_once_an_answer_is_durable_with_its_states() -> None:
    """So no offset is committed whose state may be lost."""
    waiting = Waiting()
    first, second = waiting.sends(of(b"a", 1)), waiting.sends()
    waiting.inner.due = [first, second]
    waiting.outer.push()
    assert waiting.outer.poll(0.0) == []

    waiting.inner.due = [stretch for _, stretch in waiting.inner.sent[2:]]

    assert waiting.outer.poll(0.0) == [first, second]
    assert waiting.outer.poll(0.0) == []


def test_at_least_once_states_wait_for_a_short_time_only() -> None:
    """Not even so long where the loop has nothing to do but wait for Kafka."""
    waiting = Waiting()
    waiting.sends(of(b"a", 1))
    waiting.now = LONGEST_WAIT / 2
    waiting.outer.poll(0.0)
    assert waiting.states == []
    waiting.now = LONGEST_WAIT
    waiting.outer.poll(0.0)
    assert waiting.states == [of(b"a", 1)]

    waiting.sends(of(b"a", 2))
    waiting.outer.poll(1.0)
    assert waiting.states == [of(b"a", 1), of(b"a", 2)]

    waiting.sends(*MOST_WAITING * [of(b"a", 3)])
    waiting.outer.poll(0.0)
    assert len(waiting.states) == 2 + MOST_WAITING


def test_at_least_once_states_of_a_partition_that_is_gone_are_not_sent() -> None:
    """Another replica may have written later ones by now."""
    waiting = Waiting()
    waiting.sends(of(b"a", 1))
    there = waiting.sends(of(b"b", 1, home=1), partition=P1)
    waiting.leaving.lines[P0].is_forgotten = True

    waiting.outer.push()

    assert waiting.states == [of(b"b", 1, home=1)]
    assert waiting.inner.sent[-1][1] == there

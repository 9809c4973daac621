"""Exactly once: writes only the last state of each key in a transaction to the changelog.

    send ─▶ answers ─▶ the open transaction
      └──▶ states: wait here ─(commit)─▶ the last of each key ─▶ the same transaction ─▶ its end

All of a transaction becomes visible at once, so no reader sees a state that its own transaction replaces. With at least
once all states are written: an offset between two requests of a key may be committed, so the state between them counts.

Owns the waiting states. Only the loop's thread calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from worker.core.records import Message, Partition, Place
from worker.core.runs import MessageHeaders, MessageRun, fields_of
from worker.ports import Transactions
from worker.state.changes import Concluded
from worker.state.layout import is_first, marked

Keys = Sequence[bytes]
Values = Sequence[bytes | None]


class _Waiting:
    """The states that the answers of one partition leave behind; `place` is the place of the last answer."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._topic = ""
        self._written: list[tuple[Keys, Values]] = []  # each entry names a key once
        self._forgotten: dict[bytes, MessageHeaders] = {}  # by key, the headers of the record that forgets it

    def add(self, changes: Sequence[Message]) -> None:
        if isinstance(changes, MessageRun):
            self._topic = changes.topic
            self._written.append((changes.keys, changes.values))  # type: ignore[arg-type]  # a state has a key
            return
        for self._topic, key, value, headers, *_ in fields_of(changes):
            assert key is not None
            self._written.append(((key,), (value,)))
            if value is None:
                self._forgotten[key] = headers

    def last(self) -> MessageRun:
        """The last state of each key."""
        states: dict[bytes, bytes | None] = {}
        for keys, values in self._written:
            states.update(zip(keys, values, strict=True))
        if len(states) < sum(len(keys) for keys, _ in self._written):
            self._mark_firsts(states)
        headers = [self._forgotten[key] if value is None else None for key, value in states.items()]
        number = self.place.line.partition.number
        return MessageRun(self._topic, [*states], [*states.values()], headers, number, [number] * len(states))

    def _mark_firsts(self, states: dict[bytes, bytes | None]) -> None:
        """Give each key's last state the first write's mark, because only that write knows if the key had a state."""
        firsts: dict[bytes, bytes | None] = {}
        for keys, values in reversed(self._written):
            firsts.update(zip(keys, values, strict=True))
        for key, first in firsts.items():
            last = states[key]
            if last is not None and is_first(last) is not (was_first := first is not None and is_first(first)):
                states[key] = marked(last, first=was_first)


class LastStates:
    """Wraps the transactions with Kafka, for a model with state."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._waiting: dict[Partition, _Waiting] = {}
        self.begin = transactions.begin
        self.ended = transactions.ended
        self.serve = transactions.serve

    def send(self, messages: Sequence[Message], place: Place) -> None:
        """Put a place's answers into the open transaction, in order; their states follow at its end."""
        if isinstance(messages, Concluded):
            waiting = self._waiting.setdefault(place.line.partition, _Waiting(place))
            waiting.place = place
            messages, *changes = messages.parts
            for part in changes:
                waiting.add(part)
        self._transactions.send(messages, place)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Send the last state of each key, and begin to end the transaction, with these next offsets in it."""
        for waiting in self._waiting.values():
            self._transactions.send(waiting.last(), waiting.place)
        self._waiting = {}
        self._transactions.commit(offsets)

    def abort(self) -> None:
        """Begin to take the transaction back."""
        self._waiting = {}
        self._transactions.abort()

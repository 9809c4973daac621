"""Sends answers to Kafka first, then their states to a store outside; a place is durable when both are.

    send ─▶ answers ─▶ Kafka ─▶ acknowledged, and all sent before it of its partition, too ─▶ states ─▶ store ─▶ durable

So if a state is in the store, all messages of its request and of the key's earlier requests are in Kafka. That needs a
wait for earlier ones: dead letters go to another topic, and may be acknowledged after the key's next answer.

Owns the places on the way. Only the loop's thread calls this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from worker.core.records import Line, Message, Place
from worker.core.runs import MessageHeaders, fields_of
from worker.ports import Sink
from worker.state.changes import HEAD, OFFSET, Concluded
from worker.state.layout import time_of
from worker.state.outside_values import Change, OutsideValues

# The topic of messages that are for the store.
STORE = ""
# The longest wait for Kafka, in seconds, while the store has something to acknowledge.
SOON = 0.001


class Writes(Protocol):
    """The writer of the store. None of its methods waits."""

    def write(self, changes: Sequence[Change], place: Place) -> None: ...

    def written(self) -> Sequence[Place]:
        """The places whose changes the store acknowledged since the last call. Raises `Stop` if it refuses for good."""


class _Sent:
    """One place on its way, with its `changes` for the store."""

    __slots__ = ("changes", "is_answered", "place")

    def __init__(self, place: Place, changes: Sequence[Change]) -> None:
        self.place, self.changes, self.is_answered = place, changes, False


class StoringSink:
    """Wraps the sink to Kafka, and writes states to the store after it."""

    def __init__(self, sink: Sink, writes: Writes, values: OutsideValues) -> None:
        self._sink = sink
        self._writes = writes
        self._values = values
        self._on_the_way: dict[Place, _Sent] = {}
        self._lines: dict[Line, deque[_Sent]] = {}  # in the order sent
        self._unwritten = 0  # places whose states the store has not acknowledged
        self.push = sink.push

    def send(self, messages: Sequence[Message], place: Place) -> None:
        """Send a place's answers to Kafka, in order, and keep its changes until they are acknowledged."""
        answers, changes = self._parted(messages, place)
        sent = self._on_the_way[place] = _Sent(place, changes)
        self._lines.setdefault(place.line, deque()).append(sent)
        self._sink.send(answers, place)

    def poll(self, timeout: float) -> Sequence[Place]:
        """The places that are durable now, once each; waits at most `timeout` seconds for Kafka's reports."""
        delivered = self._sink.poll(min(timeout, SOON) if self._unwritten else timeout)
        durable: list[Place] = []
        lines: dict[Line, None] = {}
        for place in delivered:
            self._on_the_way.pop(place).is_answered = True
            lines[place.line] = None
        for line in lines:
            durable += self._go_on(line)
        written = self._writes.written()
        self._unwritten -= len(written)
        return [*durable, *written]

    def _go_on(self, line: Line) -> list[Place]:
        """Write the changes that may be written now. Returns the places without changes, which are durable."""
        sent, durable = self._lines[line], []
        while sent and sent[0].is_answered:
            first = sent.popleft()
            if first.changes:
                self._writes.write(first.changes, first.place)
                self._unwritten += 1
            else:
                durable.append(first.place)
        if not sent:
            del self._lines[line]
        return durable

    def _parted(self, messages: Sequence[Message], place: Place) -> tuple[Sequence[Message], Sequence[Change]]:
        """The messages for Kafka, and the changes for the store."""
        if not isinstance(messages, Concluded):
            return messages, ()
        answers, changes = messages.parts
        partition, values = place.line.partition, self._values
        found = [
            Change(key or b"", values.forgotten(partition, *_said(headers)), is_forgotten=True)
            if value is None
            else Change(key or b"", values.written(partition, value), is_forgotten=False)
            for _, key, value, headers, *_ in fields_of(changes)
        ]
        return answers, found


def _said(headers: MessageHeaders) -> tuple[int, int]:
    """The offset of a request that has its key forgotten, and the time that its state would have."""
    said = dict(headers or ())
    return int(said[OFFSET] or b""), time_of(said[HEAD] or b"")

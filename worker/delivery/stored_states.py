"""Answers to Kafka first, then the states they leave behind to a store outside; a place is durable when both are.

    send ─▶ answers ─▶ Kafka ─▶ acknowledged, and all sent before it of its partition, too ─▶ states ─▶ store ─▶ durable

So a state in the store says that its request, and all earlier ones of its key, have all their messages in Kafka: dead
letters go to another topic than answers, and may be acknowledged later than the answer of the key's next request.

Owns what is on the way. Called by the loop's thread alone.
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
# What is in the store is looked for so soon while something is on its way there, seconds.
SOON = 0.001


class Writes(Protocol):
    """The writer of the store. None of these waits."""

    def write(self, changes: Sequence[Change], place: Place) -> None: ...

    def written(self) -> Sequence[Place]:
        """Whose changes the store has acknowledged since the last call. Raises `Stop` when it refuses us for good."""


class _Sent:
    """One place on its way. `changes` are for the store."""

    __slots__ = ("changes", "is_answered", "place")

    def __init__(self, place: Place, changes: Sequence[Change]) -> None:
        self.place, self.changes, self.is_answered = place, changes, False


class StoringSink:
    """A sink around the one to Kafka."""

    def __init__(self, sink: Sink, writes: Writes, values: OutsideValues) -> None:
        self._sink = sink
        self._writes = writes
        self._values = values
        self._on_the_way: dict[Place, _Sent] = {}
        self._lines: dict[Line, deque[_Sent]] = {}  # in the order sent
        self._unwritten = 0  # places whose states the store has not acknowledged
        self.push = sink.push

    def send(self, messages: Sequence[Message], place: Place) -> None:
        """Take a place's messages for delivery, in order."""
        answers, changes = self._parted(messages, place)
        sent = self._on_the_way[place] = _Sent(place, changes)
        self._lines.setdefault(place.line, deque()).append(sent)
        self._sink.send(answers, place)

    def poll(self, timeout: float) -> Sequence[Place]:
        """The places that are durable now, once each, waiting at most `timeout` seconds for word from Kafka."""
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
        """Write what may be written now; an answer that leaves nothing behind is durable."""
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
    """The offset of a request that has a key forgotten, and the time that its state would have."""
    said = dict(headers or ())
    return int(said[OFFSET] or b""), time_of(said[HEAD] or b"")

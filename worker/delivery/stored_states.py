"""Sends answers to Kafka first, then their states to a store outside; answers count as durable when both are.

    send ─▶ answers ─▶ Kafka ─▶ acknowledged, and all sent before it of its partition, too ─▶ states ─▶ store ─▶ durable

So if a state is in the store, all messages of its request and of the key's earlier requests are in Kafka. That needs a
wait for earlier ones: dead letters go to another topic, and may be acknowledged after the key's next answer.

Owns the answers on the way. Only the loop's thread calls this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from worker.core.ordering.ledger import Line, Stretch
from worker.core.records import Fields
from worker.delivery.last_states import Leave
from worker.ports import Sink
from worker.state.changes import HEAD
from worker.state.outside_values import Change, OutsideValues

# The longest wait for Kafka, in seconds, while the store has something to acknowledge.
SOON = 0.001


class Writes(Protocol):
    """The writer of the store. None of its methods waits."""

    def write(self, changes: Sequence[Change], stretch: Stretch) -> None: ...

    def written(self) -> Sequence[Stretch]:
        """The places whose changes the store acknowledged since the last call. Raises `Stop` if it refuses for good."""


class _Sent:
    """Answers on their way, with their `changes` for the store."""

    __slots__ = ("changes", "is_answered", "stretch")

    def __init__(self, stretch: Stretch, changes: Sequence[Change]) -> None:
        self.stretch, self.changes, self.is_answered = stretch, changes, False


class StoringSink:
    """Wraps the sink to Kafka, and writes states to the store after it."""

    def __init__(self, sink: Sink, leave: Leave, writes: Writes, values: OutsideValues) -> None:
        self._sink = sink
        self._leave = leave
        self._writes = writes
        self._values = values
        self._on_the_way: dict[Stretch, _Sent] = {}
        self._lines: dict[Line, deque[_Sent]] = {}  # in the order sent
        self._unwritten = 0  # stretches whose states the store has not acknowledged
        self.push = sink.push

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        """Send answers to Kafka, in order, and keep their changes until they are acknowledged."""
        sent = self._on_the_way[stretch] = _Sent(stretch, self._changes(stretch))
        self._lines.setdefault(stretch.places.line, deque()).append(sent)
        self._sink.send(messages, stretch)

    def poll(self, timeout: float) -> Sequence[Stretch]:
        """The places that are durable now, once each; waits at most `timeout` seconds for Kafka's reports."""
        delivered = self._sink.poll(min(timeout, SOON) if self._unwritten else timeout)
        durable: list[Stretch] = []
        lines: dict[Line, None] = {}
        for stretch in delivered:
            self._on_the_way.pop(stretch).is_answered = True
            lines[stretch.places.line] = None
        for line in lines:
            durable += self._go_on(line)
        written = self._writes.written()
        self._unwritten -= len(written)
        return [*durable, *written]

    def _go_on(self, line: Line) -> list[Stretch]:
        """Write the changes that may be written now. Returns the places without changes, which are durable."""
        sent, durable = self._lines[line], []
        while sent and sent[0].is_answered:
            first = sent.popleft()
            if first.changes:
                self._writes.write(first.changes, first.stretch)
                self._unwritten += 1
            else:
                durable.append(first.stretch)
        if not sent:
            del self._lines[line]
        return durable

    def _changes(self, stretch: Stretch) -> Sequence[Change]:
        """The changes for the store."""
        partition, values = stretch.partition, self._values
        return [
            Change(key or b"", values.forgotten(partition, dict(headers or ())[HEAD] or b""), is_forgotten=True)
            if value is None
            else Change(key or b"", values.written(partition, value), is_forgotten=False)
            for _, key, value, headers, *_ in self._leave(stretch)
        ]

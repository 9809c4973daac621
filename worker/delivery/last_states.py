"""Sends states to the changelog, behind the answers that they belong to.

    at least once   every state goes: an offset between two requests of a key may be committed, so the state between
                    them counts. An answer is durable when its states are

    exactly once    only the last state of each key in a transaction goes, because all of it becomes visible at once

    send ─▶ answers ─▶ the producer, at once
      └──▶ states: wait here ─▶ all that wait, together ─▶ the producer

Many states together cost the broker much less than as many in small sets. Only the loop's thread calls this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from worker.core.ordering.ledger import Stretch
from worker.core.records import Fields, Partition
from worker.ports import Sink, Transactions
from worker.state.layout import is_first, marked

# At least once, the longest wait of a state in seconds, and the most states that wait. An offset is committed so much
# later: a quarter of the usual commit interval at most.
LONGEST_WAIT, MOST_WAITING = 0.05, 4096

# Gives the messages for the changelog that go with answers that leave (`KeyStates.leave`).
Leave = Callable[[Stretch], Sequence[Fields]]
_key_of: Callable[[Fields], bytes | None] = itemgetter(1)


class EachState:
    """Wraps the sink to Kafka, for a model with state. Owns the waiting states and the half durable places."""

    def __init__(self, sink: Sink, leave: Leave, clock: Callable[[], float]) -> None:
        self._sink = sink
        self._leave = leave
        self._clock = clock
        self._waiting: list[tuple[Stretch, Sequence[Fields]]] = []
        self._count = 0  # waiting states
        self._due = 0.0  # when the first of them has waited long enough
        self._half: set[Stretch] = set()  # places whose answers are acknowledged, or whose states are

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        """Send answers. Their states follow with others."""
        states = self._leave(stretch)
        if not self._waiting:
            self._due = self._clock() + LONGEST_WAIT
        self._waiting.append((stretch, states))
        self._count += len(states)
        self._sink.send(messages, stretch)

    def poll(self, timeout: float) -> Sequence[Stretch]:
        """The places whose answers and states are durable, once each. States that wait go when a call may wait."""
        if self._waiting and (timeout > 0 or self._count >= MOST_WAITING or self._clock() >= self._due):
            self._send_states()
        durable: list[Stretch] = []
        for stretch in self._sink.poll(timeout):
            if stretch in self._half:
                self._half.remove(stretch)
                durable.append(stretch)
            else:
                self._half.add(stretch)
        return durable

    def push(self) -> None:
        """Send all that waits, because no more answers are coming for now."""
        self._send_states()
        self._sink.push()

    def _send_states(self) -> None:
        """Send the waiting states, except the states of partitions that another replica may have by now."""
        for stretch, states in self._waiting:
            self._sink.send(() if stretch.places.line.is_forgotten else states, stretch)
        self._waiting, self._count = [], 0


class LastStates:
    """Wraps the transactions with Kafka, for a model with state. Owns the waiting states."""

    def __init__(self, transactions: Transactions, leave: Leave) -> None:
        self._transactions = transactions
        self._leave = leave
        self._waiting: dict[Partition, tuple[Stretch, list[Fields]]] = {}  # the last answers, and all states
        self.begin = transactions.begin
        self.ended = transactions.ended
        self.serve = transactions.serve

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        """Put answers into the open transaction, in order; their states follow at its end."""
        if states := self._leave(stretch):
            _, waiting = self._waiting.get(stretch.partition, (stretch, []))
            waiting += states
            self._waiting[stretch.partition] = stretch, waiting
        self._transactions.send(messages, stretch)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Send the last state of each key, and begin to end the transaction, with these next offsets in it."""
        for stretch, states in self._waiting.values():
            self._transactions.send(_last(states), stretch)
        self._waiting = {}
        self._transactions.commit(offsets)

    def abort(self) -> None:
        """Begin to take the transaction back."""
        self._waiting = {}
        self._transactions.abort()


def _last(states: Sequence[Fields]) -> list[Fields]:
    """The last state of each key, with the first write's mark: only that write knows if the key had a state before."""
    last = dict(zip(map(_key_of, states), states, strict=True))
    if len(last) < len(states):
        for topic, key, first, *_ in {_key_of(state): state for state in reversed(states)}.values():
            _, _, value, *others = last[key]
            if value is not None and is_first(value) is not (was_first := first is not None and is_first(first)):
                last[key] = topic, key, marked(value, first=was_first), *others  # type: ignore[assignment]  # the rest
    return [*last.values()]

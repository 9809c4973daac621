"""Sends states to the changelog, together with the answers that they belong to.

    at least once   each state goes with its answer: an offset between two requests of a key may be committed, so the
                    state between them counts
    exactly once    only the last state of each key in a transaction goes, because all of it becomes visible at once:

    send ─▶ answers ─▶ the open transaction
      └──▶ states: wait here ─(commit)─▶ the last of each key ─▶ the same transaction ─▶ its end

Only the loop's thread calls this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from worker.core.ordering.ledger import Stretch
from worker.core.records import Fields, Partition
from worker.ports import Sink, Transactions
from worker.state.layout import is_first, marked

# Gives the messages for the changelog that go with answers that leave (`KeyStates.leave`).
Leave = Callable[[Stretch], Sequence[Fields]]
_key_of: Callable[[Fields], bytes | None] = itemgetter(1)


class EachState:
    """Wraps the sink to Kafka, for a model with state."""

    def __init__(self, sink: Sink, leave: Leave) -> None:
        self._send = sink.send
        self._leave = leave
        self.poll = sink.poll
        self.push = sink.push

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        """Send answers and their states. Both must be durable before an offset is committed."""
        self._send([*messages, *self._leave(stretch)], stretch)


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

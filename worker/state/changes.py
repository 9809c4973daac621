"""The next states as messages for the changelog: they go the way of the answers, and with them.

Each goes to the partition with the number of its request's, whatever its key hashes to. Exactly once the states, the
answers and the offsets are in one transaction; at least once no offset is committed before its states are durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from worker.core.foreign_values import whole_number
from worker.core.records import Message, Outcome, Prediction, StateUse
from worker.core.runs import MessageRun, MessageRuns, Run
from worker.ports import Encoder
from worker.state.layout import HEAD_BYTES, is_first
from worker.state.restoring import Tombstone
from worker.state.slabs import NO_OFFSET
from worker.state.states import KeyStates

# Headers of a record that says that a key is forgotten: by which request, and the head of the state that this would
# have left, unless the key was too old.
OFFSET, HEAD = "offset", "head"


class Concluded(MessageRuns):
    """The messages of an outcome: `parts` are its answer's, and then what it leaves to the next request of its key."""

    __slots__ = ()


class StatefulEncoder:
    """Writes the messages of an outcome: its answer, and what it leaves to the next request of its key."""

    def __init__(self, encoder: Encoder, states: KeyStates, topic: str) -> None:
        self._encoder = encoder
        self._states = states
        self._topic = topic

    def encode(self, outcome: Outcome) -> Sequence[Message]:
        """The answer's messages, and one for each key whose state was written."""
        messages = self._encoder.encode(outcome)
        if not isinstance(outcome, Prediction) or outcome.states is None or outcome.request.state is StateUse.READ:
            return messages
        changes = self._changes(outcome)
        expired, number = self._states.leaves(outcome.request), outcome.request.record.partition.number
        if expired is not None and expired.keys:
            # First: one of them may be written again.
            return Concluded((messages, self._forgotten(number, *expired), changes))
        return Concluded((messages, changes))

    def _forgotten(self, number: int, keys: Iterable[bytes], offset: int) -> list[Message]:
        headers: list[tuple[str, bytes | None]] = [(OFFSET, b"%d" % offset)]
        return [Message(self._topic, key, None, headers, number, number) for key in keys]

    def _changes(self, prediction: Prediction) -> Sequence[Message]:
        request, _, _, stop, states = prediction
        number = request.record.partition.number
        assert states is not None
        last = len(states.values) if stop is None else stop
        if request.state is StateUse.DELETE:
            [message] = self._forgotten(number, [request.record.key or b""], request.record.offset)
            message.headers.append((HEAD, (states.values[last - 1] or b"")[:HEAD_BYTES]))
            return [message]
        if not isinstance(request, Run):
            return [Message(self._topic, request.record.key, states.values[last - 1], [], number, number)]
        count = len(request.records)
        values = states.values[last - count : last]
        return MessageRun(self._topic, request.keys, values, [None] * count, number, [number] * count)


def tombstone_of(headers: Iterable[tuple[str, bytes | None]]) -> Tombstone:
    """What a record says by which a key is forgotten. Others may have written it: what we do not read says nothing."""
    found = dict(headers)
    offset, head = found.get(OFFSET) or b"", found.get(HEAD) or b""
    number = whole_number(offset)
    is_new = len(head) == HEAD_BYTES and is_first(head)
    return Tombstone(NO_OFFSET if number is None else number, is_first=is_new)

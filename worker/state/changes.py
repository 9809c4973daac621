"""Turns next states into changelog messages, which are sent together with the answers.

A message goes to the partition with the number of its request's partition, whatever its key hashes to. Exactly once,
one transaction has states, answers and offsets. At least once, an offset is committed when its states are durable.
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

# Headers of a tombstone: the offset of the request that had the key forgotten, and the head of the state that this
# request would have left. A state that expired has no head.
OFFSET, HEAD = "offset", "head"


class Concluded(MessageRuns):
    """The messages of an outcome: `parts` are first the answer's messages, then those for the changelog."""

    __slots__ = ()


class StatefulEncoder:
    """Writes the messages of an outcome: its answer, and the next state of its key."""

    def __init__(self, encoder: Encoder, states: KeyStates, topic: str) -> None:
        self._encoder = encoder
        self._states = states
        self._topic = topic

    def encode(self, outcome: Outcome) -> Sequence[Message]:
        """Returns the answer's messages, and a changelog message for each key whose state was written or forgotten."""
        messages = self._encoder.encode(outcome)
        if not isinstance(outcome, Prediction) or outcome.states is None or outcome.request.state is StateUse.READ:
            return messages
        changes = self._changes(outcome)
        expired, number = self._states.leaves(outcome.request), outcome.request.record.partition.number
        if expired is not None and expired.keys:
            # Tombstones first: this outcome may write one of these keys again.
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
    """Reads a tombstone's headers. Another program may have written them: headers that we cannot read are ignored."""
    found = dict(headers)
    offset, head = found.get(OFFSET) or b"", found.get(HEAD) or b""
    number = whole_number(offset)
    is_new = len(head) == HEAD_BYTES and is_first(head)
    return Tombstone(NO_OFFSET if number is None else number, is_first=is_new)

"""Makes changelog messages of next states. They leave together with the answers (`KeyStates.leave`).

A message goes to the partition with the number of its request's partition, whatever its key hashes to. Exactly once,
one transaction has states, answers and offsets. At least once, an offset is committed when its states are durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from worker.core.chunk import Chunk
from worker.core.foreign_values import whole_number
from worker.core.records import Fields, Headers, StateUse
from worker.state.layout import HEAD_BYTES, is_first
from worker.state.restoring import Tombstone
from worker.state.slabs import NO_OFFSET

# Headers of a tombstone: the offset of the request that had the key forgotten, and the head of the state that this
# request would have left. A state that expired has no head.
OFFSET, HEAD = "offset", "head"


def note(topic: str, chunk: Chunk, values: Sequence[bytes]) -> None:
    """Note with the places of these records what their answers leave behind: `values` in the form of the changelog."""
    places, at, number, keys = chunk.places, chunk.at, chunk.partition.number, chunk.keys
    assert places is not None
    if places.changes is None:
        places.changes = [None] * len(places)
    changes: Iterable[Fields] = zip(
        repeat(topic), keys, values, repeat(None), repeat(number), repeat(number), strict=False
    )
    if chunk.state is StateUse.DELETE:
        changes = [
            forgotten(topic, number, key, record.offset, value[:HEAD_BYTES])
            for record, key, value in zip(chunk.records, keys, values, strict=True)
        ]
    if at[-1] - at[0] == len(at) - 1:
        places.changes[at[0] : at[-1] + 1] = changes
    else:
        for index, change in zip(at, changes, strict=True):
            places.changes[index] = change


def forgotten(topic: str, number: int, key: bytes, offset: int, head: bytes | None = None) -> Fields:
    """The tombstone of a key, which the request at `offset` had forgotten."""
    headers: list[tuple[str, bytes | None]] = [(OFFSET, b"%d" % offset)]
    return topic, key, None, headers if head is None else [*headers, (HEAD, head)], number, number


def tombstone_of(headers: Headers) -> Tombstone:
    """Reads a tombstone's headers. Another program may have written them: headers that we cannot read are ignored."""
    found = dict(headers)
    offset, head = found.get(OFFSET) or b"", found.get(HEAD) or b""
    number = whole_number(offset)
    is_new = len(head) == HEAD_BYTES and is_first(head)
    return Tombstone(NO_OFFSET if number is None else number, is_first=is_new)

"""The frame of a value whose schema is in a registry: it names the schema that the value was written with.

| where                           | bytes                                |
|---|---|
| begin of the value              | 0, and the schema's id in 4 bytes    |
| begin of the value              | 1, and the schema's GUID in 16 bytes |
| the header `__value_schema_id`  | either of them; the value has none   |

A Protobuf value goes on with the place of its message in the schema, behind the id or the GUID.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from worker.core.failures import Reject
from worker.core.schemas import SchemaName

SCHEMA_HEADER = "__value_schema_id"
_BY_ID, _BY_GUID = 0, 1
_ID_END, _GUID_END = 5, 17
_EXPECTED = "byte 0 and a schema id of 4 bytes, or byte 1 and a GUID of 16 bytes"


class Frame(NamedTuple):
    """The writer's schema of a value, and where the value's body begins."""

    schema: SchemaName
    start: int
    # The place of a Protobuf message in its schema, where a header has it. Else the body begins with it.
    place: bytes = b""


def frame_of(value: bytes, header: bytes | None = None) -> Frame:
    """The frame of a value. The header is that of the name `SCHEMA_HEADER`. Raises `Reject`."""
    if header is not None:
        schema, end = _named(header, f"header {SCHEMA_HEADER}")
        return Frame(schema, 0, header[end:])
    return Frame(*_named(value, "the value"))


def _named(framed: bytes, where: str) -> tuple[SchemaName, int]:
    """The name of the schema, and where it ends."""
    kind = framed[0] if framed else None
    if kind == _BY_ID and len(framed) >= _ID_END:
        return int.from_bytes(framed[1:_ID_END], "big"), _ID_END
    if kind == _BY_GUID and len(framed) >= _GUID_END:
        return UUID(bytes=framed[1:_GUID_END]), _GUID_END
    raise Reject(f"{where}: expected the frame of a schema registry: {_EXPECTED}")


class Framed(NamedTuple):
    """Indexes of values by their frame, in the order of the values, and the refusals of others by index."""

    frames: Mapping[Frame, Sequence[int]]
    faults: Mapping[int, Reject]


def framed(values: Sequence[bytes], headers: Sequence[bytes | None] | None = None) -> Framed:
    """The frames of many values, at least one. `headers` is None where no value has the header."""
    if headers is None and values[0][:1] == b"\0" and len({value[:_ID_END] for value in values}) == 1:
        try:  # nearly always one schema: 0.1 µs a value, and 0.6 where they differ (2026-11)
            return Framed({frame_of(values[0]): range(len(values))}, {})
        except Reject as refusal:
            return Framed({}, dict.fromkeys(range(len(values)), refusal))
    heads: dict[tuple[bytes, bytes | None], list[int]] = {}
    for at, value in enumerate(values):
        header = None if headers is None else headers[at]
        head = value[:_ID_END] if value[:1] == b"\0" else value[:_GUID_END]
        heads.setdefault((b"" if header is not None else head, header), []).append(at)
    frames: dict[Frame, Sequence[int]] = {}
    faults: dict[int, Reject] = {}
    for (head, header), indexes in heads.items():
        try:
            frames[frame_of(head, header)] = indexes
        except Reject as refusal:
            faults.update(dict.fromkeys(indexes, refusal))
    return Framed(frames, faults)


def frame(schema_id: int) -> bytes:
    """The begin of a value that was written with the schema of this id."""
    return bytes([_BY_ID]) + schema_id.to_bytes(4, "big")

"""The values of a schema registry: a schema as it is registered there, and the names that records call it by.

A record names its writer's schema by a number (magic byte 0), or by a GUID (magic byte 1, or a header). A schema of
either name never changes, so one that was fetched once is right for ever.
"""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

SchemaType = Literal["AVRO", "PROTOBUF", "JSON"]


class NamedReference(NamedTuple):
    """A schema that another one refers to: by `name`, which is an import, a full name or a URI, as its type says."""

    name: str
    text: str


class RegisteredSchema(NamedTuple):
    """A schema, and all schemas that it refers to, directly or not: each after those that it refers to itself."""

    id: int | None
    guid: str | None
    type: SchemaType
    text: str
    references: tuple[NamedReference, ...] = ()
    was_text: bool = False  # a Protobuf schema that the registry has as a `.proto` text, of which `text` was made


# The name of a schema in a record: its number, or its GUID.
SchemaName = int | UUID


class UnknownSchema(NamedTuple):
    """The registry's verdict: it has no schema of this name, or one that nothing here can read. `why` says it."""

    why: str

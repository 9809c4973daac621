"""The readers of records by the schema that each record was written with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from worker.codecs.records.avro import AvroRecords
from worker.codecs.records.framing import Frame
from worker.codecs.records.json_schema import JsonRecords
from worker.codecs.records.protobuf import ProtobufRecords
from worker.core.failures import Reject
from worker.core.schemas import RegisteredSchema, SchemaType

# A reader is kept for each schema. Topics have a few; a publisher may register any number.
MOST_READERS = 256


class RecordReader(Protocol):
    """Reads the records of one schema."""

    def read(self, value: bytes, frame: Frame) -> dict[str, Any]:
        """The wanted fields of a record by name, without missing ones. Raises `Reject`."""


_READERS: Mapping[SchemaType, Callable[[RegisteredSchema, Collection[tuple[str, ...]] | None], RecordReader]] = {
    "AVRO": AvroRecords,
    "PROTOBUF": ProtobufRecords,
    "JSON": JsonRecords,
}


class RecordReaders:
    """Makes a reader for each schema, once. Owns the readers, and the refusals of schemas that cannot be read."""

    def __init__(self, wanted: Collection[tuple[str, ...]] | None) -> None:
        """They read the fields of these paths; None: whole records. A step `*` goes to each item of an array."""
        self._wanted = wanted
        self._made: dict[tuple[int | None, str | None], RecordReader | str] = {}

    def of(self, schema: RegisteredSchema) -> RecordReader:
        """The reader of a schema. Raises `Reject` if it cannot be read."""
        key = (schema.id, schema.guid)
        if key not in self._made:
            if len(self._made) >= MOST_READERS:
                del self._made[next(iter(self._made))]
            try:
                self._made[key] = _READERS[schema.type](schema, self._wanted)
            except Reject as no:
                self._made[key] = no.message
        made = self._made[key]
        if isinstance(made, str):
            raise Reject(made)
        return made

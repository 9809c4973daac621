"""Values whose schema is in a registry: they are read as it says, once it is here.

waiting: which records may be read?          objects: the wanted fields of each value
values ── frames ── schemas here? ──▶ …  ──▶ frames ── readers ──▶ objects, faults by index
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

from worker.codecs.encodings.oip import Fault
from worker.codecs.records.framing import SCHEMA_HEADER, Framed, framed
from worker.codecs.records.json_schema import JsonRecords
from worker.codecs.records.projection import Given
from worker.codecs.records.readers import RecordReader, RecordReaders
from worker.core.chunk import Waiting
from worker.core.failures import Reject
from worker.core.records import Record
from worker.core.schemas import RegisteredSchema, SchemaName, UnknownSchema
from worker.ports import Schemas


class FramedValues:
    """Reads framed values. It asks for schemas, and never waits for one."""

    def __init__(self, schemas: Schemas, wanted: Collection[tuple[str, ...]] | None) -> None:
        """`wanted`: the paths of the fields that are read; None: whole records."""
        self._schemas = schemas
        self._readers = RecordReaders(wanted)
        # Of the records asked about last, which are read next: others may be forgotten meanwhile.
        self._found: dict[SchemaName, RegisteredSchema | UnknownSchema] = {}

    def waiting(self, records: Sequence[Record]) -> Waiting | None:
        """The first record whose schema is not here yet; None: all can be read, or refused."""
        self._found = {}
        at = [index for index, record in enumerate(records) if record[3]]
        if not at:
            return None
        waiting: list[Waiting] = []
        for frame, indexes in _frames([records[index] for index in at]).frames.items():
            schema = self._schemas.get(frame.schema)
            if schema is None:
                waiting.append(Waiting(at[indexes[0]], frame.schema))
            else:
                self._found[frame.schema] = schema
        return min(waiting, key=itemgetter(0), default=None)

    def objects(self, records: Sequence[Record], faults: dict[int, Fault]) -> list[Given]:
        """The wanted fields of these records, none of which was `waiting`; of JSON its text, which may be anything.

        One with a fault, also before, is empty.
        """
        objects: list[Given] = [{}] * len(records)
        frames, refusals = _frames(records)
        for at, refusal in refusals.items():
            faults[at] = Fault(refusal.code, refusal.message, None)
        for frame, indexes in frames.items():
            try:
                reader = self._reader(frame.schema)
            except Reject as no:
                faults.update(dict.fromkeys(indexes, Fault(no.code, no.message, None)))
                continue
            read = reader.text if isinstance(reader, JsonRecords) else reader.read
            for at in indexes:
                if at in faults:
                    continue
                try:
                    objects[at] = read(records[at][3], frame)  # type: ignore[arg-type]  # it has a value
                except Reject as no:
                    faults[at] = Fault(no.code, no.message, None)
        return objects

    def _reader(self, name: SchemaName) -> RecordReader:
        schema = self._found[name]
        if isinstance(schema, UnknownSchema):
            raise Reject(schema.why)
        return self._readers.of(schema)


def _frames(records: Sequence[Record]) -> Framed:
    """The frames of these records, which have values."""
    values: list[Any] = [record[3] for record in records]
    headers = None
    if any(record[4] for record in records):
        headers = [_schema_header(record) for record in records]
        if headers.count(None) == len(headers):
            headers = None
    return framed(values, headers)


def _schema_header(record: Record) -> bytes | None:
    return next((value for name, value in reversed(record[4]) if name == SCHEMA_HEADER), None)

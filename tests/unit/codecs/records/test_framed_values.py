"""Values with a schema are read once it is here; the first whose schema is not stops its partition alone."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro

from tests.unit.codecs.records.builders import mapping, numbers, record, record_codec, served
from worker.codecs.codec import Codec
from worker.codecs.records.framed_values import FramedValues
from worker.codecs.records.framing import SCHEMA_HEADER, frame
from worker.codecs.records.projection import from_objects
from worker.core.chunk import Waiting
from worker.core.records import Headers, Record
from worker.core.schemas import RegisteredSchema, SchemaName, UnknownSchema

AVRO = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "double"}, {"name": "id", "type": "string"}]}
NUMBERS = RegisteredSchema(1, None, "AVRO", json.dumps(AVRO))
AS_JSON = RegisteredSchema(2, None, "JSON", "{}")
BROKEN = RegisteredSchema(3, None, "AVRO", "nonsense")


class Here:
    """The schemas that are here. Others are asked for, and do not come."""

    trouble: str | None = None
    away_since: float | None = None

    def __init__(self, schemas: Mapping[SchemaName, RegisteredSchema | UnknownSchema]) -> None:
        self.schemas = dict(schemas)

    def get(self, name: SchemaName) -> RegisteredSchema | UnknownSchema | None:
        return self.schemas.get(name)


HERE: Mapping[SchemaName, RegisteredSchema | UnknownSchema] = {
    1: NUMBERS,
    2: AS_JSON,
    3: BROKEN,
    4: UnknownSchema("schema id 4 is not in the registry"),
}


def codec(here: Here | None = None, **section: Any) -> Codec:
    of = mapping(reader_of=from_objects, **section)
    return record_codec(served(), of, framed=FramedValues(here or Here(HERE), of.wanted))


def avro(x: float, schema: int = 1, headers: Headers = (), offset: int = 0) -> Record:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"x": x, "id": "i"})
    body = out.getvalue()
    return record(body if headers else frame(schema) + body, offset, headers=headers)


def test_each_record_is_read_by_its_own_schema() -> None:
    """A topic may change from one schema to another, also in the middle of a poll."""
    reading = codec(answer={"keep": ["id"]}).read(
        [avro(1), record(frame(2) + b'{"x": 2}', 1), avro(3, headers=[(SCHEMA_HEADER, frame(1))], offset=2)]
    )
    assert not reading.rejections
    [chunk] = reading.chunks
    assert numbers(chunk.tensors[0]) == [[1], [2], [3]]
    assert chunk.kept == [("i",), (None,), ("i",)]


def test_json_with_a_schema_is_read_as_other_json_is() -> None:
    """Its text is read once, and only for the fields of the mapping."""
    texts = [b'{"x": 1, "id": "i"}', b'{"id": "i"}', b'{"x": 1', b'{"x": 1, "id": "\xff"}', b'{"x": 1, "y": "\xff"}']
    reading = codec(answer={"keep": ["id"]}).read([record(frame(2) + text, at) for at, text in enumerate(texts)])
    assert {at: rejection.message for at, rejection in reading.rejections} == {
        1: "x: missing",
        2: "the record is no JSON object: input data was truncated",
        3: "a text of the record is not UTF-8",
    }
    assert [list(chunk.at) for chunk in reading.chunks] == [[0, 4]]


def test_other_headers_say_nothing_of_a_schema() -> None:
    """The frame is in the value then."""
    [chunk] = codec().read([record(frame(2) + b'{"x": 2}', headers=[("traceparent", b"t")])]).chunks
    assert numbers(chunk.tensors[0]) == [[2]]


def test_nothing_is_read_from_the_first_record_on_whose_schema_is_not_here() -> None:
    """What stands before it is, and what stands behind it waits, too."""
    here = Here(HERE)
    records = [avro(1), avro(2, schema=9), avro(3)]
    reading = codec(here).read(records)
    assert reading.waiting == Waiting(1, 9)
    assert [list(chunk.at) for chunk in reading.chunks] == [[0]]
    assert codec(here).read(records[1:]) == ([], [], Waiting(0, 9)) or codec(here).read(records[1:]).waiting == Waiting(
        0, 9
    )
    here.schemas[9] = NUMBERS
    assert codec(here).read(records).waiting is None


def test_the_earliest_of_several_missing_schemas_is_waited_for() -> None:
    """The next one is found when that one is here."""
    records = [avro(1, schema=8), avro(2, schema=9)]
    assert codec().read(records).waiting == Waiting(0, 8)


def test_a_schema_that_cannot_be_had_is_its_records_fault() -> None:
    """As is a value that is not of its schema, or has none. The neighbours are read."""
    bad = [avro(1, schema=4), avro(1, schema=3), record(frame(1) + b"\1"), record(b"{}"), record(frame(2) + b"[]")]
    reading = codec().read([avro(1), *bad])
    assert [at for at, _ in reading.rejections] == [1, 2, 3, 4, 5]
    first, second, *_ = [rejection.message for _, rejection in reading.rejections]
    assert first == "schema id 4 is not in the registry"
    assert second == "schema 3 cannot be read as an Avro schema"
    assert codec().description(avro(1, schema=4)) is None
    assert [list(chunk.at) for chunk in reading.chunks] == [[0]]


def test_a_record_may_not_be_larger_than_what_is_parsed() -> None:
    """The limit is that of all records; it is refused before it is read."""
    of = mapping(reader_of=from_objects)
    limited = record_codec(served(), of, framed=FramedValues(Here(HERE), of.wanted), max_json_bytes=40)
    reading = limited.read([record(frame(2) + b'{"x": 1, "more": "%b"}' % (b"z" * 40)), avro(1, offset=1)])
    [(at, rejection)] = reading.rejections
    assert (at, rejection.code.value) == (0, "RESOURCE_EXHAUSTED")
    assert [list(chunk.at) for chunk in reading.chunks] == [[1]]


def test_a_record_without_a_value_waits_for_no_schema() -> None:
    """It is refused, or skipped, as ever."""
    assert [rejection.message for _, rejection in codec().read([record(b"")]).rejections] == [
        "expected a record, got an empty value"
    ]


def test_only_the_fields_of_the_mapping_are_read() -> None:
    """Their paths go through the envelope; a record that is wanted as a whole is read as a whole."""
    of = mapping(reader_of=from_objects, envelope="after", key="id", inputs={"x": "a.b"}, answer={"keep": ["c"]})
    assert of.wanted == [("after", "id"), ("after", "c"), ("after", "a", "b")]
    assert of.kept_paths == {"c": ("after", "c")}
    assert mapping(reader_of=from_objects, answer={"keep": "all"}).wanted is None

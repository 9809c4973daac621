"""The schema of answers in the records' own encoding: one for all that goes to a topic.

It has the fields kept of the record, the fields of the answer, and `error`. All may be null: an answer has no `error`,
and the answer to a wrong record has nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from worker.codecs.records.answer_fields import AnswerField, AnswerSchema, Kept, no_clash
from worker.codecs.records.avro_answers import AvroAnswers
from worker.codecs.records.json_answers import JsonAnswers
from worker.codecs.records.protobuf_answers import ProtobufAnswers
from worker.core.failures import BadConfiguration, Reject
from worker.core.schemas import RegisteredSchema, SchemaType

_SCHEMAS: Mapping[SchemaType, type[AvroAnswers | ProtobufAnswers | JsonAnswers]] = {
    "AVRO": AvroAnswers,
    "PROTOBUF": ProtobufAnswers,
    "JSON": JsonAnswers,
}


def answer_schema(record: RegisteredSchema, fields: Sequence[AnswerField], kept: Kept) -> AnswerSchema:
    """The schema of answers with these fields to records of this schema.

    Raises `BadConfiguration` for a field that cannot be, and for a record's schema that cannot be read.
    """
    no_clash(fields, kept)
    with _readable():
        return _SCHEMAS[record.type](record, fields, kept)


def whole_record(record: RegisteredSchema) -> Kept:
    """All fields of records of this schema, to be kept. Raises `BadConfiguration` if the schema cannot be read."""
    with _readable():
        return {name: (name,) for name in _SCHEMAS[record.type].names(record)}


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except Reject as no:
        raise BadConfiguration(f"[records] {no.message}; answers are written as it says") from no

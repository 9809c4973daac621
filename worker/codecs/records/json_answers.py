"""Answers in JSON with a registered JSON Schema. A kept field has the schema that the record's schema gives it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from worker.codecs.records.answer_fields import ERROR, AnswerField, Kept, unfit, wrong_one
from worker.codecs.records.avro_schema import called
from worker.codecs.records.framing import frame
from worker.core.failures import Reject
from worker.core.schemas import RegisteredSchema, SchemaType

_TYPES: Mapping[str, str] = {
    "BOOL": "boolean",
    **dict.fromkeys(("FP16", "FP32", "FP64"), "number"),
    "BYTES": "string",
}
_DEFINITIONS = ("definitions", "$defs")
_DEFINITION = re.compile(r"#/(definitions|\$defs)/([^/]+)")
_MOST_REFERENCES = 10  # one after the other: they may go around
# A reference to what the answer's schema does not have: another schema, or another place in the record's.
_ELSEWHERE = re.compile(r'"\$ref": "(?!#/(?:definitions|\$defs)/)')
_UNFIT = (TypeError, ValueError, RecursionError)
_encode = msgspec.json.Encoder().encode


class JsonAnswers:
    """The schema of answers to records of this schema."""

    type: SchemaType = "JSON"

    def __init__(self, record: RegisteredSchema, fields: Sequence[AnswerField], kept: Kept) -> None:
        """A kept field of which the record's schema says nothing may be anything."""
        given = _parsed(record)
        title = _followed(given, given).get("title", "Record")
        properties = {name: _property(given, path) for name, path in kept.items()}
        definitions = {key: given[key] for key in _DEFINITIONS if key in given}
        if _ELSEWHERE.search(json.dumps([properties, definitions])):
            properties, definitions = dict.fromkeys(kept, True), {}
        properties |= {field.name: _type_of(field) for field in fields}
        properties[ERROR] = {"type": "string"}
        self._names, self._kept = list(properties), kept
        self.text = json.dumps(
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "title": f"{title}Answer",
                "type": "object",
                "properties": {name: _nullable(schema) for name, schema in properties.items()},
                # Else a property more would not be compatible with a schema that takes any (BACKWARD).
                "additionalProperties": False,
                **definitions,
            }
        )

    def writer(self, schema_id: int) -> JsonAnswerWriter:
        """Writes answers with the schema, which the registry knows by this id."""
        return JsonAnswerWriter(schema_id, self._names[:-1], self._kept)

    @staticmethod
    def names(record: RegisteredSchema) -> Sequence[str]:
        """The fields of records of this schema. Raises `Reject` if it cannot be read."""
        given = _parsed(record)
        return list(_object(_followed(given, given).get("properties")))


class JsonAnswerWriter:
    """Writes answers as JSON objects: instants and decimals as texts, bytes in base64, NaN as null."""

    content_type = "application/vnd.confluent.json"

    def __init__(self, schema_id: int, names: Sequence[str], kept: Kept) -> None:
        self._head = frame(schema_id)
        self._names = names
        self._kept = kept

    def write(self, columns: Sequence[Sequence[Any]]) -> Sequence[bytes]:
        """The answers. Raises `Reject`."""
        answers = [dict(zip(self._names, values, strict=True)) for values in zip(*columns, strict=True)]
        try:
            return [self._head + _encode(answer) for answer in answers]
        except _UNFIT:
            wrong = wrong_one(self._names, columns, lambda _, value: _encode(value), _UNFIT)
            raise unfit(wrong, self._kept) from None

    def error(self, message: str) -> bytes:
        """The answer to a wrong record."""
        return self._head + _encode({ERROR: message})


def _type_of(field: AnswerField) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES.get(field.datatype, "integer")}
    for _ in field.dims:
        schema = {"type": "array", "items": schema}
    return schema


def _nullable(schema: Any) -> Any:
    return schema if schema is True else {"anyOf": [{"type": "null"}, schema]}


def _property(given: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The schema of the field at this path; `true`, which takes anything, where none is said."""
    schema: Any = given
    for step in path:
        schema = _object(_followed(given, schema).get("properties")).get(step)
    return schema or True


def _followed(given: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """The definition that a schema refers to, as Go's serializer has it for the record itself; else the schema."""
    for _ in range(_MOST_REFERENCES):
        found = _DEFINITION.fullmatch(str(_object(schema).get("$ref")))
        if found is None:
            break
        schema = _object(given.get(found[1])).get(found[2])
    return _object(schema)


def _parsed(record: RegisteredSchema) -> Mapping[str, Any]:
    try:
        return _object(json.loads(record.text))
    except (ValueError, RecursionError) as error:
        raise Reject(f"{called(record)} is no JSON Schema") from error


def _object(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, dict) else {}

"""Answers in Avro. A kept field has the type that the record's schema gives it; every field may be null."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from worker.codecs.records.answer_fields import ERROR, AnswerField, Kept, refuse, unfit
from worker.codecs.records.avro_schema import AvroSchema, Type
from worker.codecs.records.avro_writing import UNFIT, Writers
from worker.codecs.records.framing import frame
from worker.core.schemas import RegisteredSchema, SchemaType

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES: Mapping[str, str] = {
    "BOOL": "boolean",
    **dict.fromkeys(("INT8", "INT16", "INT32", "UINT8", "UINT16"), "int"),
    **dict.fromkeys(("INT64", "UINT32", "UINT64"), "long"),
    **dict.fromkeys(("FP16", "FP32"), "float"),
    "FP64": "double",
    "BYTES": "string",
}


class AvroAnswers:
    """The schema of answers to records of this schema: that record's name with `Answer` behind it."""

    type: SchemaType = "AVRO"

    def __init__(self, record: RegisteredSchema, fields: Sequence[AnswerField], kept: Kept) -> None:
        """Raises `BadConfiguration` for a name that Avro does not allow, and for a kept field that the record lacks."""
        types = AvroSchema(record)
        self._kept = kept
        inline = _Inline(types)
        given = {name: inline.of(_type_at(types, name, path)) for name, path in kept.items()}
        given |= {field.name: _type_of(field) for field in fields}
        for name in given:
            if not _NAME.fullmatch(name):
                refuse(name, "Avro takes letters, digits and _ in a name; choose another one")
        self._fields = [*given, ERROR]
        given[ERROR] = "string"
        self.text = json.dumps(
            {
                "type": "record",
                "name": f"{types.root}Answer",
                "fields": [{"name": name, "type": _nullable(kind), "default": None} for name, kind in given.items()],
            }
        )

    def writer(self, schema_id: int) -> AvroAnswerWriter:
        """Writes answers with the schema, which the registry knows by this id."""
        return AvroAnswerWriter(RegisteredSchema(schema_id, None, "AVRO", self.text), self._kept)

    @staticmethod
    def names(record: RegisteredSchema) -> Sequence[str]:
        """The fields of records of this schema. Raises `Reject` if it cannot be read."""
        types = AvroSchema(record)
        return [field["name"] for field in types.named[types.root]["fields"]]


class AvroAnswerWriter:
    """Writes answers column by column."""

    content_type = "application/vnd.confluent.avro"

    def __init__(self, schema: RegisteredSchema, kept: Kept) -> None:
        types = AvroSchema(schema)
        writers = Writers(types)
        fields = types.named[types.root]["fields"]
        self._head = frame(schema.id or 0)
        self._writes = [(field["name"], writers.of(field["type"])) for field in fields]
        self._kept = kept

    def write(self, columns: Sequence[Sequence[Any]]) -> Sequence[bytes]:
        """The answers. Raises `Reject`."""
        pieces: list[Iterable[bytes]] = [repeat(self._head)]
        for (name, write), column in zip(self._writes, columns, strict=False):  # without `error`
            try:
                pieces.append(list(map(write, column)))
            except UNFIT:
                raise unfit(name, self._kept) from None
        return list(map(b"".join, zip(*pieces, repeat(b"\0"), strict=False)))

    def error(self, message: str) -> bytes:
        """The answer to a wrong record."""
        *others, (_, write) = self._writes
        return self._head + bytes(len(others)) + write(message)


def _type_of(field: AnswerField) -> Any:
    kind: Any = _TYPES[field.datatype]
    for _ in field.dims:
        kind = {"type": "array", "items": kind}
    return kind


def _nullable(kind: Any) -> list[Any]:
    branches = kind if isinstance(kind, list) else [kind]
    return ["null", *[branch for branch in branches if branch != "null"]]


def _type_at(types: AvroSchema, name: str, path: Sequence[str]) -> Type:
    """The type of the field at this path."""
    kind: Type = types.root
    for step in path:
        if isinstance(kind, list):
            others = [branch for branch in kind if branch != "null"]
            kind = others[0] if len(others) == 1 else kind
        fields = types.definition(kind).get("fields", []) if isinstance(kind, str) else []
        found = [field["type"] for field in fields if step == field["name"] or step in field["aliases"]]
        if not found:
            refuse(name, f"the records have no field {'.'.join(path)} to keep")
        kind = found[0]
    return kind


class _Inline:
    """Writes types with the definitions of their named types, each where it comes first."""

    def __init__(self, types: AvroSchema) -> None:
        self._types = types
        self._defined: set[str] = set()

    def of(self, kind: Type) -> Any:
        match kind:
            case str():
                return self._definition(kind, {})
            case list():
                return [self.of(branch) for branch in kind]
            case {"items": item}:
                return {"type": "array", "items": self.of(item)}
            case {"values": inner}:
                return {"type": "map", "values": self.of(inner)}
        logical = {key: value for key, value in kind.items() if key != "type"}
        return self._definition(kind["type"], logical)

    def _definition(self, name: str, logical: Mapping[str, Any]) -> Any:
        given = self._types.definition(name)
        if name not in self._types.named:
            return {"type": name, **logical} if logical else name
        if name in self._defined:
            return name
        self._defined.add(name)
        if "fields" not in given:
            return {**given, **logical}
        return {**given, "fields": [self._field(field) for field in given["fields"]]}

    def _field(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """With its default and aliases: else no field that the records gain would make a compatible answer."""
        aliases = {"aliases": given["aliases"]} if given["aliases"] else {}
        default = {"default": given["default"]} if "default" in given else {}
        return {"name": given["name"], "type": self.of(given["type"]), **default, **aliases}

"""Answers in Protobuf. A kept field has the type that the record's schema gives it, and every field is optional.

Fields of the answer have the numbers from 2, kept ones from 1,001, each in the order of the settings: one that is added
at the end leaves the others compatible.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    OneofDescriptorProto,
)
from google.protobuf.message_factory import GetMessageClass

from worker.codecs.records.answer_fields import ERROR, AnswerField, Kept, refuse, unfit, wrong_one
from worker.codecs.records.framing import frame
from worker.codecs.records.protobuf import value_of
from worker.codecs.records.protobuf_schema import ProtobufSchema
from worker.core.schemas import RegisteredSchema, SchemaType

_Field = FieldDescriptorProto
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_FIRST_KEPT = 1_001
_TYPES: Mapping[str, int] = {
    "BOOL": _Field.TYPE_BOOL,
    **dict.fromkeys(("INT8", "INT16", "INT32"), _Field.TYPE_INT32),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), _Field.TYPE_UINT32),
    "INT64": _Field.TYPE_INT64,
    "UINT64": _Field.TYPE_UINT64,
    **dict.fromkeys(("FP16", "FP32"), _Field.TYPE_FLOAT),
    "FP64": _Field.TYPE_DOUBLE,
    "BYTES": _Field.TYPE_STRING,
}
_TIMESTAMP = "google.protobuf.Timestamp"
_TIMESTAMP_FILE = "google/protobuf/timestamp.proto"
_UNFIT = (TypeError, ValueError, OverflowError)


class ProtobufAnswers:
    """The schema of answers to records of this schema: that message's name with `Answer` behind it.

    A registry does not say which message records are: the first that has all kept fields counts. The schema is in the
    form that the records' own has there, a `.proto` text or a descriptor in base64: a registry may give it as it came,
    and the readers of Go take texts alone, those of Python and JavaScript descriptors alone.
    """

    type: SchemaType = "PROTOBUF"

    def __init__(self, record: RegisteredSchema, fields: Sequence[AnswerField], kept: Kept) -> None:
        """Raises `BadConfiguration` for a name or a type that Protobuf does not allow."""
        messages = ProtobufSchema(record).messages()
        given = next((each for each in messages if all(_found(each, path) for path in kept.values())), messages[0])
        message = DescriptorProto(name=f"{given.name}Answer")
        file = FileDescriptorProto(name="answer.proto", package=given.file.package, syntax="proto3")
        _add(message, _Field(name=ERROR, number=1, type=_Field.TYPE_STRING))
        for number, field in zip(count(2), fields, strict=False):
            _add(message, _of_answer(field, number))
        for number, (name, path) in zip(count(_FIRST_KEPT), kept.items(), strict=False):
            _add(message, _of_record(name, _field_at(given, name, path), number))
        if any(field.type_name for field in message.field):
            file.dependency.append(_TIMESTAMP_FILE)
        file.message_type.append(message)
        self._descriptor = base64.b64encode(file.SerializeToString()).decode()
        self.text = _proto_text(file) if record.was_text else self._descriptor
        self._names, self._kept = [*kept, *[field.name for field in fields]], kept

    def writer(self, schema_id: int) -> ProtobufAnswerWriter:
        """Writes answers with the schema, which the registry knows by this id."""
        schema = RegisteredSchema(schema_id, None, "PROTOBUF", self._descriptor)
        return ProtobufAnswerWriter(schema, self._names, self._kept)

    @staticmethod
    def names(record: RegisteredSchema) -> Sequence[str]:
        """The fields of records of this schema. Raises `Reject` if it cannot be read."""
        return [field.name for field in ProtobufSchema(record).messages()[0].fields]


class ProtobufAnswerWriter:
    """Writes answers as messages, the first one of their schema."""

    content_type = "application/vnd.confluent.protobuf"

    def __init__(self, schema: RegisteredSchema, names: Sequence[str], kept: Kept) -> None:
        self._head = frame(schema.id or 0) + b"\0"  # the first message
        self._message: Any = GetMessageClass(ProtobufSchema(schema).message((0,)))
        self._names = names
        self._kept = kept

    def write(self, columns: Sequence[Sequence[Any]]) -> Sequence[bytes]:
        """The answers. Raises `Reject`."""
        message, head, names = self._message, self._head, self._names
        try:
            return [
                head + message(**dict(zip(names, values, strict=True))).SerializeToString()
                for values in zip(*columns, strict=True)
            ]
        except _UNFIT:
            wrong = wrong_one(names, columns, lambda name, value: message(**{name: value}), _UNFIT)
            raise unfit(wrong, self._kept) from None

    def error(self, message: str) -> bytes:
        """The answer to a wrong record."""
        written: bytes = self._message(**{ERROR: message}).SerializeToString()
        return self._head + written


def _add(message: DescriptorProto, field: FieldDescriptorProto) -> None:
    """Add the field, with presence if it is not repeated."""
    if not _NAME.fullmatch(field.name):
        refuse(field.name, "Protobuf takes letters, digits and _ in a name; choose another one")
    if field.label != _Field.LABEL_REPEATED:
        field.label = _Field.LABEL_OPTIONAL
        if not field.type_name:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.append(OneofDescriptorProto(name=f"_{field.name}"))
    message.field.append(field)


def _of_answer(field: AnswerField, number: int) -> FieldDescriptorProto:
    if len(field.dims) > 1:
        refuse(field.name, f"Protobuf has no lists of lists, and this field has {len(field.dims)} dimensions")
    label = _Field.LABEL_REPEATED if field.dims else _Field.LABEL_OPTIONAL
    return _Field(name=field.name, number=number, type=_TYPES[field.datatype], label=label)


def _of_record(name: str, given: Any, number: int) -> FieldDescriptorProto:
    """A kept field: an enum as its name, a box as what is in it."""
    label = _Field.LABEL_REPEATED if given.is_repeated else _Field.LABEL_OPTIONAL
    field = _Field(name=name, number=number, label=label)
    kind = given.message_type
    if given.enum_type is not None:
        field.type = _Field.TYPE_STRING
    elif kind is None:
        field.type = given.type
    elif value_of(kind) is not None and kind.full_name == _TIMESTAMP:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_TIMESTAMP}"
    elif value_of(kind) is not None and kind.file.name == "google/protobuf/wrappers.proto":
        field.type = kind.fields_by_name["value"].type
    else:
        refuse(name, f"the answer cannot keep a {kind.full_name}; keep fields of it, such as {name}.id")
    return field


def _proto_text(file: FileDescriptorProto) -> str:
    """The file as people write it. It has one message."""
    (message,) = file.message_type
    package = [f"package {file.package};"] if file.package else []
    imports = [f'import "{name}";' for name in file.dependency]
    return "\n".join(
        [
            'syntax = "proto3";',
            *package,
            *imports,
            f"message {message.name} {{",
            *[f"  {_label(field)}{_type(field)} {field.name} = {field.number};" for field in message.field],
            "}\n",
        ]
    )


def _label(field: FieldDescriptorProto) -> str:
    return "repeated " if field.label == _Field.LABEL_REPEATED else "optional " * field.proto3_optional


def _type(field: FieldDescriptorProto) -> str:
    name: str = field.type_name or _Field.Type.Name(field.type).removeprefix("TYPE_").lower()
    return name


def _field_at(message: Any, name: str, path: Sequence[str]) -> Any:
    return _found(message, path) or refuse(name, f"the records have no field {'.'.join(path)} to keep")


def _found(message: Any, path: Sequence[str]) -> Any:
    """The field at this path; None if the message has none there."""
    found = None
    for step in path:
        found = None if message is None else message.fields_by_name.get(step)
        if found is None:
            return None
        message = found.message_type
    return found

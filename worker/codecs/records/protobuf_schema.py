"""The messages of a registered Protobuf schema, whose text is a `FileDescriptorProto` in base64.

Registries give it when they are asked for `format=serialized`, or the worker makes it of their text (`proto_texts.py`).
Imports are the schema's references, and the files that every Protobuf library has.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from worker.codecs.records.avro_schema import called
from worker.core.failures import Reject
from worker.core.schemas import RegisteredSchema

# The file of the schema itself: a name that no import has, as the registry's own clients have it.
MAIN = "default"
_STANDARD = re.compile(r"google/(?:protobuf|type)/\w+\.proto")
# Descriptors that are cut, lack a name or an import, contradict one another, or import themselves.
_MALFORMED = (DecodeError, ValueError, TypeError, KeyError, RecursionError)


class ProtobufSchema:
    """The file of a schema, with its imports. Owns the pool of their messages."""

    def __init__(self, schema: RegisteredSchema) -> None:
        """Raises `Reject` if the schema cannot be read, or imports a file that is not here."""
        self._schema = schema
        self._pool = DescriptorPool()
        self._added: set[str] = set()
        self.most_fields = 0  # of one message
        try:
            for name, text in schema.references:
                if name not in self._added:
                    self._add(file_of(name, text))
            self._file = file_of(MAIN, schema.text)
            self._add(self._file)
        except ImportError as error:
            raise Reject(f"{called(schema)} imports a file that is not here: {error.name}") from error
        except _MALFORMED as error:
            raise Reject(f"{called(schema)} cannot be read as a Protobuf schema") from error

    def message(self, place: Sequence[int]) -> Any:
        """The message at this place: its index in the file, then in that message, and so on. Raises `Reject`."""
        names = [self._file.package] if self._file.package else []
        messages: Sequence[DescriptorProto] = self._file.message_type
        for index in place:
            if not 0 <= index < len(messages):
                raise Reject(f"the value names a message that {called(self._schema)} has not")
            names.append(messages[index].name)
            messages = messages[index].nested_type
        return self._pool.FindMessageTypeByName(".".join(names))

    def messages(self) -> Sequence[Any]:
        """All messages of the schema: first those that no other one holds, as records are. Raises `Reject`."""
        names = [f"{self._file.package}.{message.name}".lstrip(".") for message in self._file.message_type]
        found = [each for name in names for each in _with_nested(self._pool.FindMessageTypeByName(name))]
        if not found:
            raise Reject(f"{called(self._schema)} has no message")
        held = {kind.full_name for message in found for kind in _kinds(message) if kind.full_name != message.full_name}
        return sorted(found, key=lambda message: message.full_name in held)

    def _add(self, file: FileDescriptorProto) -> None:
        self._added.add(file.name)
        for name in file.dependency:
            if name not in self._added:
                self._add(_standard(name))
        self._pool.Add(file)
        self.most_fields = max([self.most_fields, *map(_most_fields, file.message_type)])


def _with_nested(message: Any) -> Iterator[Any]:
    yield message
    for nested in message.nested_types:
        yield from _with_nested(nested)


def _kinds(message: Any) -> Iterator[Any]:
    return (field.message_type for field in message.fields if field.message_type is not None)


def _most_fields(message: DescriptorProto) -> int:
    return max([len(message.field), *map(_most_fields, message.nested_type)])


def file_of(name: str, text: str) -> FileDescriptorProto:
    """The file of this name, by its descriptor in base64. Raises `ValueError` and `DecodeError`."""
    file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    file.name = name
    return file


def _standard(name: str) -> FileDescriptorProto:
    """A file that schemas import without a reference. Raises `ImportError`."""
    file = FileDescriptorProto()
    if _STANDARD.fullmatch(name):
        module = import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
        module.DESCRIPTOR.CopyToProto(file)
    elif name == "confluent/type/decimal.proto":
        file.CopyFrom(_decimal(name))
    elif name == "confluent/types/decimal.proto":  # an older place of the same message
        file = FileDescriptorProto(name=name, dependency=["confluent/type/decimal.proto"], public_dependency=[0])
    elif name == "confluent/meta.proto":  # notes on fields, which say nothing of values
        file.name = name
    else:
        raise ImportError(name, name=name)
    return file


def _decimal(name: str) -> FileDescriptorProto:
    kinds = {"value": FieldDescriptorProto.TYPE_BYTES, "precision": FieldDescriptorProto.TYPE_UINT32}
    kinds["scale"] = FieldDescriptorProto.TYPE_INT32
    fields = [
        FieldDescriptorProto(name=field, number=at, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
        for at, (field, kind) in enumerate(kinds.items(), 1)
    ]
    message = DescriptorProto(name="Decimal", field=fields)
    return FileDescriptorProto(name=name, package="confluent.type", syntax="proto3", message_type=[message])

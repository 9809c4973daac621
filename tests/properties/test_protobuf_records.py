"""Records of any Protobuf schema are read as the official runtime writes them in JSON; damaged ones are refused."""

from __future__ import annotations

import math
import random
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from google.protobuf import timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from tests.meeting import meeting, met, with_each_seed
from tests.properties.test_schema_records import damaged, refusal_of
from worker.codecs.records.answer_schemas import answer_schema, whole_record
from worker.codecs.records.framing import Frame
from worker.codecs.records.protobuf import ProtobufRecords
from worker.core.failures import BadConfiguration, Reject
from worker.core.schemas import RegisteredSchema

Field = FieldDescriptorProto
FRAME, FIRST = Frame(7, 0), b"\0"
SIGNED = {Field.TYPE_INT32: 31, Field.TYPE_SINT32: 31, Field.TYPE_SFIXED32: 31}
SIGNED |= {Field.TYPE_INT64: 63, Field.TYPE_SINT64: 63, Field.TYPE_SFIXED64: 63}
UNSIGNED = {Field.TYPE_UINT32: 32, Field.TYPE_FIXED32: 32, Field.TYPE_UINT64: 64, Field.TYPE_FIXED64: 64}
KEYS = [*SIGNED, *UNSIGNED, Field.TYPE_BOOL, Field.TYPE_STRING]
SCALARS = [*KEYS, Field.TYPE_BYTES, Field.TYPE_FLOAT, Field.TYPE_DOUBLE]
# Any publisher may choose these: methods of the library and of Python, words of Python.
NAMES = ["HasField", "ByteSize", "CopyFrom", "FromString", "DiscardUnknownFields", "class", "None", "self", "__init__"]
STANDARD = [".google.protobuf.Timestamp", ".google.protobuf.Int64Value", ".google.protobuf.StringValue"]
ENUM = {"ZERO": 0, "ONE": 1, "MINUS": -1}


class RandomProtobuf:
    """A random file of messages, which may hold one another, and random messages of its first kind."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.is_old = chance.random() < 0.3  # proto2
        self._count = chance.randrange(1, 4)
        syntax = "proto2" if self.is_old else "proto3"
        self.file = FileDescriptorProto(name="random.proto", package="p", syntax=syntax)
        self.file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
        enum = self.file.enum_type.add(name="E")
        for name, number in ENUM.items():
            enum.value.add(name=name, number=number)
        for at in range(self._count):
            self._fill(self.file.message_type.add(name=f"M{at}"))
        pool = DescriptorPool()
        for standard in (timestamp_pb2, wrappers_pb2):
            pool.AddSerializedFile(standard.DESCRIPTOR.serialized_pb)
        pool.Add(self.file)
        self.kind: Any = GetMessageClass(pool.FindMessageTypeByName("p.M0"))
        text = b64encode(self.file.SerializeToString()).decode()
        self.schema = RegisteredSchema(7, None, "PROTOBUF", text)

    def message(self) -> Any:
        return self._message(self.kind.DESCRIPTOR, 0)

    def _fill(self, message: DescriptorProto) -> None:
        names = self._chance.sample([*NAMES, *(f"f{at}" for at in range(9))], self._chance.randrange(9))
        for number, name in enumerate(names, 1):
            if self._chance.random() < 0.2:
                self._add_map(message, name, number)
            else:
                self._add(message, Field(name=name, number=number * self._chance.choice([1, 100])), is_key=False)

    def _add_map(self, message: DescriptorProto, name: str, number: int) -> None:
        entry = message.nested_type.add(name=f"Entry{number}")
        entry.options.map_entry = True
        self._add(entry, Field(name="key", number=1, label=Field.LABEL_OPTIONAL), is_key=True)
        self._add(entry, Field(name="value", number=2, label=Field.LABEL_OPTIONAL), is_key=False)
        full = f".p.{message.name}.{entry.name}"
        message.field.add(name=name, number=number, label=Field.LABEL_REPEATED, type=Field.TYPE_MESSAGE, type_name=full)

    def _add(self, message: DescriptorProto, field: FieldDescriptorProto, *, is_key: bool) -> None:
        chance = self._chance
        field.type = chance.choice(KEYS if is_key else [*SCALARS, Field.TYPE_ENUM, *[Field.TYPE_MESSAGE] * 6])
        if field.type == Field.TYPE_ENUM:
            field.type_name = ".p.E"
        elif field.type == Field.TYPE_MESSAGE:
            field.type_name = chance.choice([*STANDARD, *(f".p.M{at}" for at in range(self._count))])
            if self.is_old and field.type_name not in STANDARD and not message.options.map_entry:
                field.type = chance.choice([Field.TYPE_GROUP, Field.TYPE_MESSAGE])
        if not field.HasField("label"):
            field.label = chance.choice([Field.LABEL_OPTIONAL, Field.LABEL_OPTIONAL, Field.LABEL_REPEATED])
        if (
            self.is_old
            and field.type in SIGNED
            and field.label == Field.LABEL_OPTIONAL
            and not message.options.map_entry
        ):
            field.label, field.default_value = chance.choice([Field.LABEL_OPTIONAL, Field.LABEL_REQUIRED]), "5"
        if field.label == Field.LABEL_REPEATED and field.type in (*SIGNED, *UNSIGNED):
            field.options.packed = chance.random() < 0.5
        if field.label == Field.LABEL_OPTIONAL and not message.options.map_entry and chance.random() < 0.4:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_o{field.number}")
            field.proto3_optional = not self.is_old
        message.field.append(field)

    def _message(self, kind: Any, depth: int) -> Any:
        message = GetMessageClass(kind)()
        for field in kind.fields:
            if self._chance.random() < 0.3 or (depth > 2 and field.message_type is not None):
                continue
            given = getattr(message, field.name)
            if not field.is_repeated:
                self._set(message, field, depth)
            elif field.message_type is not None and field.message_type.GetOptions().map_entry:
                self._enter(given, field.message_type.fields_by_name, depth)
            else:
                given.extend(self._value(field, depth) for _ in range(self._chance.randrange(4)))
        return message

    def _set(self, message: Any, field: Any, depth: int) -> None:
        if field.message_type is None:
            setattr(message, field.name, self._value(field, depth))
        else:
            getattr(message, field.name).MergeFrom(self._value(field, depth))

    def _enter(self, entries: Any, fields: Any, depth: int) -> None:
        for _ in range(self._chance.randrange(4)):
            key = self._value(fields["key"], depth)
            if fields["value"].message_type is None:
                entries[key] = self._value(fields["value"], depth)
            else:
                entries[key].MergeFrom(self._value(fields["value"], depth))

    def _value(self, field: Any, depth: int) -> Any:
        chance, kind = self._chance, field.type
        if field.message_type is not None:
            return self._standard(field.message_type, depth)
        if field.enum_type is not None:
            return chance.choice([*ENUM.values(), *[7] * (not self.is_old)])
        if kind in SIGNED:
            most = 2 ** SIGNED[kind]
            return chance.choice([0, 1, -1, most - 1, -most, chance.randrange(-most, most)])
        if kind in UNSIGNED:
            return chance.choice([0, 1, 2 ** UNSIGNED[kind] - 1])
        makers: dict[int, Callable[[], Any]] = {
            Field.TYPE_BOOL: lambda: chance.random() < 0.5,
            Field.TYPE_STRING: lambda: "".join(chance.choices("aß€😀\0", k=chance.choice([0, 1, 9]))),
            Field.TYPE_BYTES: lambda: chance.randbytes(chance.choice([0, 1, 9])),
            Field.TYPE_FLOAT: lambda: chance.choice([math.nan, math.inf, -0.0, chance.randrange(-999, 999) / 8]),
            Field.TYPE_DOUBLE: lambda: chance.choice([0.0, -math.inf, chance.uniform(-1e9, 1e9)]),
        }
        return makers[kind]()

    def _standard(self, kind: Any, depth: int) -> Any:
        if kind.full_name != "google.protobuf.Timestamp":
            return self._message(kind, depth + 1)
        seconds = self._chance.randrange(-62_135_596_800, 253_402_300_800)
        return GetMessageClass(kind)(seconds=seconds, nanos=1000 * self._chance.randrange(1_000_000))


def in_json(value: Any) -> Any:
    """The fields of our reader, or of the official JSON, with all numbers as texts."""
    match value:
        case dict():
            return {key: in_json(each) for key, each in value.items()}
        case list():
            return [in_json(each) for each in value]
        case bool():
            return value
        case float() if not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case int() | float():
            return str(value)
        case bytes():
            return b64encode(value).decode()
        case datetime():
            instant = timestamp_pb2.Timestamp()
            instant.FromDatetime(value)
            return instant.ToJsonString()
    return value


@meeting(
    "a field of the name of a method", "a list", "a map", "a message", "an instant", "a group", "a default", least=10
)
def test_any_record_of_any_schema_is_read_as_the_official_json_shows_it() -> None:
    """Each field alone is what it is in the whole record."""

    def walk(chance: random.Random) -> None:
        source = RandomProtobuf(chance)
        fields = source.kind.DESCRIPTOR.fields
        names = [field.name for field in fields]
        wanted = [name for name in names if chance.random() < 0.5]
        whole, some = ProtobufRecords(source.schema, None), ProtobufRecords(source.schema, [(name,) for name in wanted])
        for _ in range(3):
            message = source.message()
            value = FIRST + source.kind.SerializePartialToString(message)
            right = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)

            read = whole.read(value, FRAME)
            assert in_json(read) == in_json(right)
            assert in_json(some.read(value, FRAME)) == {name: in_json(read[name]) for name in wanted if name in read}
        met("a field of the name of a method", is_so="HasField" in names)
        met("a group", is_so=any(field.type == Field.TYPE_GROUP for field in fields))
        met("a default", is_so=any(field.has_default_value for field in fields))
        for case, kind in {"a list": list, "a map": dict, "an instant": datetime}.items():
            met(case, is_so=any(isinstance(each, kind) and each for each in read.values()))
        met("a message", is_so=any(field.message_type and not field.is_repeated for field in fields))

    with_each_seed(300, walk)


@meeting("refused", "read", least=40)
def test_a_damaged_record_of_any_schema_is_read_or_refused() -> None:
    """Nothing else happens, also with fields of another type."""

    def walk(chance: random.Random) -> None:
        source = RandomProtobuf(chance)
        reader = ProtobufRecords(source.schema, None)
        for _ in range(5):
            value = damaged(chance, FIRST + source.kind.SerializePartialToString(source.message()), 1)
            met("read" if refusal_of(reader, value) is None else "refused")

    with_each_seed(200, walk)


@meeting("refused", "read", "kept", least=40)
def test_a_wrong_descriptor_is_refused_or_read() -> None:
    """Nothing else happens to a worker, whatever its publishers register."""

    def walk(chance: random.Random) -> None:
        source = RandomProtobuf(chance)
        raw = bytearray(source.file.SerializeToString())
        for _ in range(chance.randrange(1, 3)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        schema = source.schema._replace(text=b64encode(raw).decode())
        try:
            reader = ProtobufRecords(schema, None)
        except Reject:
            met("refused")
            return
        value = FIRST + source.kind.SerializePartialToString(source.message())
        met("read", is_so=refusal_of(reader, value) is None)
        with suppress(BadConfiguration):
            for name in whole_record(schema):
                answer_schema(schema, [], {name: (name,)}).writer(9)
                met("kept")

    with_each_seed(1000, walk)

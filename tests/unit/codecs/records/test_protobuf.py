"""Protobuf records: presence, enums, values in messages of their own, several messages of a schema, hostile bytes."""

from __future__ import annotations

import base64
from collections.abc import Collection
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.unit.codecs.records.registry import Registry, compiled, framed_by, protobuf, schema_of
from worker.codecs.records.answer_schemas import answer_schema
from worker.codecs.records.framing import Frame
from worker.codecs.records.protobuf import ProtobufRecords
from worker.core.failures import BadConfiguration, Reject
from worker.core.schemas import NamedReference, RegisteredSchema

SHOP = compiled(
    shop="""
        syntax = "proto3";
        package shop;
        import "google/protobuf/timestamp.proto";
        import "google/protobuf/wrappers.proto";
        import "items.proto";
        message Payment {
          message Line { int32 number = 1; message Part { string name = 1; } }
          string id = 1;
          optional int32 count = 2;
          oneof way { string card = 3; bool cash = 4; }
          Kind kind = 5;
          google.protobuf.Timestamp at = 6;
          google.protobuf.Int64Value boxed = 7;
          repeated Item items = 8;
          map<string, int32> numbers = 9;
          map<string, Item> shelf = 10;
          repeated int32 counts = 11;
          Payment parent = 12;
          uint64 large = 13;
          bytes raw = 14;
          repeated Kind kinds = 15;
          repeated google.protobuf.Timestamp times = 16;
        }
        enum Kind { WEB = 0; APP = 1; }
        message Other { bool flag = 1; }
    """,
    items='syntax = "proto3"; package shop; message Item { string sku = 1; float price = 2; }',
)
Payment, Item, Other, Line = SHOP["shop.Payment"], SHOP["shop.Item"], SHOP["shop.Other"], SHOP["shop.Payment.Line"]
SCHEMA = schema_of(Payment, Item)
FRAME, FIRST = Frame(7, 0), b"\0"
OLD = compiled(old='syntax = "proto2"; message Old { optional string text = 1; required int32 number = 2; }')["Old"]


def read(message: Any, wanted: Collection[tuple[str, ...]] | None = None) -> dict[str, Any]:
    return ProtobufRecords(SCHEMA, wanted).read(FIRST + message.SerializeToString(), FRAME)


def refusal(value: bytes, schema: RegisteredSchema = SCHEMA, frame: Frame = FRAME) -> str:
    with pytest.raises(Reject) as refused:
        ProtobufRecords(schema, None).read(value, frame)
    return refused.value.message


def test_fields_with_presence_are_missing_unless_they_are_set() -> None:
    """The others have their default, as in Protobuf."""
    empty = {"id": "", "kind": "WEB", "large": 0, "raw": b""}
    lists: dict[str, Any] = {"items": [], "numbers": {}, "shelf": {}, "counts": [], "kinds": [], "times": []}

    assert read(Payment()) == {**empty, **lists}
    assert read(Payment(count=0, cash=False), [("count",), ("card",), ("cash",)]) == {"count": 0, "cash": False}


def test_an_enum_is_its_name() -> None:
    """A number that has no name, which a newer publisher sends, is the number."""
    assert read(Payment(kind=1, kinds=[0, 7]), [("kind",), ("kinds", "*")]) == {"kind": "APP", "kinds": ["WEB", 7]}


def test_messages_that_mean_a_value_are_that_value() -> None:
    """Instants have microseconds, and a box has its value or is missing."""
    at = datetime(2026, 11, 27, 1, 2, 3, 456_789, UTC)
    message = Payment(at=at, boxed={"value": 0}, times=[at])

    assert read(message, [("at",), ("boxed",), ("times",)]) == {"at": at, "boxed": 0, "times": [at]}


def test_lists_maps_and_messages_become_lists_and_objects() -> None:
    """A path goes through each item of a list."""
    message = Payment(
        items=[Item(sku="a", price=0.5)],
        numbers={"one": 1},
        shelf={"x": Item(sku="b")},
        counts=[1, 2],
        parent=Payment(id="p", parent=Payment(id="pp")),
    )

    assert read(message, [("items", "*", "price")]) == {"items": [{"price": 0.5}]}
    assert read(message, [("numbers",), ("shelf",), ("counts",)]) == {
        "numbers": {"one": 1},
        "shelf": {"x": {"sku": "b", "price": 0.0}},
        "counts": [1, 2],
    }
    assert read(message, [("parent", "parent", "id"), ("large",)]) == {"parent": {"parent": {"id": "pp"}}, "large": 0}


def test_a_value_names_its_message_by_its_place() -> None:
    """The place is in the value, or in the header that names the schema."""
    other, line = Other(flag=True).SerializeToString(), Line(number=7).SerializeToString()
    reader = ProtobufRecords(SCHEMA, None)

    assert reader.read(b"\2\2" + other, FRAME) == {"flag": True}
    assert reader.read(b"\4\0\0" + line, FRAME) == {"number": 7}
    assert reader.read(line, Frame(7, 0, b"\4\0\0")) == {"number": 7}
    assert reader.read(b"\6\0\0\0", FRAME) == {"name": ""}


@pytest.mark.parametrize(
    "message", [Payment(id="a"), Other(flag=True), Line(number=7)], ids=["first", "other", "nested"]
)
def test_a_schema_of_several_files_and_messages_is_read_as_the_official_client_writes_it(message: Any) -> None:
    """It registers the imports as references, and writes the place of the message."""
    registry = Registry()
    value, headers = registry.written(protobuf(registry, type(message)), message)
    ((field, given),) = message.ListFields()

    read = ProtobufRecords(registry.schema, [(field.name,)]).read(value, framed_by(value, headers))

    assert read == {field.name: given}
    assert [name for name, _ in registry.schema.references] == ["items.proto"]


@pytest.mark.parametrize(
    "place", [b"", b"\2", b"\1", b"\xff\xff\x7f", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1", b"\x80" * 11]
)
def test_a_wrong_place_is_refused(place: bytes) -> None:
    """It may be cut, negative, or longer than messages nest."""
    assert "expected" in refusal(place)


@pytest.mark.parametrize("place", [b"\2\4", b"\4\0\6", b"\2\1"])
def test_a_place_without_a_message_is_refused(place: bytes) -> None:
    """Also a negative one."""
    assert refusal(place + b"1234") == "the value names a message that schema 7 has not"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\x0a\5ab", "the record: expected a Protobuf message"),
        (b"\x0a\1\xff", "the record: expected a Protobuf message"),
        (b"\0", "the record: expected a Protobuf message"),
        (b"\x62\xff\xff\xff\xff\x7f", "the record: expected a Protobuf message"),
        (b"\x0b" * 10_000, "the record: expected a Protobuf message"),
        (b"\x10\1\x12\1a", "count: it came as another type than its schema says"),
        (b"\x62\3\x12\1a", "parent.count: it came as another type than its schema says"),
        (b"\x32\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "at: expected an instant of the years 1 to 9999"),
    ],
)
def test_hostile_bytes_are_refused(body: bytes, message: str) -> None:
    """The path is told where the library does not refuse the message as a whole."""
    assert refusal(FIRST + body) == f"{message} (Protobuf, schema 7)"


def test_messages_in_messages_are_refused_in_the_end() -> None:
    """The library's limit is a hundred."""
    nested = b""
    for _ in range(10_000):
        size = len(nested)
        nested = b"\x62" + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + nested

    assert refusal(FIRST + nested) == "the record: expected a Protobuf message (Protobuf, schema 7)"


def test_a_field_of_a_newer_publisher_is_passed_over() -> None:
    """Its number is not one of the schema."""
    value = FIRST + Payment(id="a").SerializeToString() + b"\xf8\7\1"

    assert ProtobufRecords(SCHEMA, [("id",)]).read(value, FRAME) == {"id": "a"}


def test_some_bytes_of_unknown_fields_are_judged() -> None:
    """A MiB of them is passed over, and what is known is read."""
    reader, wrong = ProtobufRecords(SCHEMA, [("count",)]), b"\x12\1a"

    assert reader.read(FIRST + wrong * 30_000 + b"\x10\7", FRAME) == {"count": 7}
    with pytest.raises(Reject, match=r"^count: it came as another type"):
        reader.read(FIRST + wrong + b"\x72\x80\x80\4" + bytes(65_536), FRAME)


def test_a_million_items_are_refused() -> None:
    """An item takes two bytes, and has all of its fields."""
    assert (
        refusal(FIRST + b"\x42\0" * 100_001)
        == "items: expected at most 100,000 values in the arrays and maps of a record (Protobuf, schema 7)"
    )
    assert refusal(FIRST + b"".join(b"\x4a\6\x0a\4%04x" % at for at in range(100_001 // 2)) + b"\x42\0" * 60_000)


def test_many_messages_with_many_fields_are_not_parsed() -> None:
    """The library makes room for each field of each: 40 KB would be 160 MB."""
    fields = "".join(f"int64 f{at} = {at};" for at in range(1, 1001))
    big = compiled(big=f'syntax = "proto3"; message Root {{ repeated Big b = 1; }} message Big {{ {fields} }}')["Root"]

    assert "expected at most 67092 bytes of messages with so many fields" in refusal(
        FIRST + b"\x0a\0" * 40_000, schema_of(big)
    )


def test_a_text_of_proto2_that_is_none_is_bytes() -> None:
    """The mapping refuses it then, where a text is wanted."""
    assert ProtobufRecords(schema_of(OLD), None).read(FIRST + b"\x0a\1\xff", FRAME) == {"text": b"\xff"}


def test_a_field_may_have_the_name_of_a_method() -> None:
    """The library's own are used all the same."""
    text = "optional int32 HasField = 1; optional int32 other = 2; bytes DiscardUnknownFields = 3; bool CopyFrom = 4;"
    reader = ProtobufRecords(schema_of(compiled(odd=f'syntax = "proto3"; message Odd {{ {text} }}')["Odd"]), None)

    assert reader.read(FIRST + b"\x08\7\x20\1", FRAME) == {"HasField": 7, "DiscardUnknownFields": b"", "CopyFrom": True}
    assert reader.read(FIRST + b"\x08\7\xf8\7\1" * 20_000, FRAME)["HasField"] == 7


def test_the_keys_of_a_map_are_texts() -> None:
    """A path of the mapping names them so, as Protobuf's JSON does."""
    kind = compiled(maps='syntax = "proto3"; message Maps { map<int64, bool> a = 1; map<bool, int32> b = 2; }')["Maps"]
    reader = ProtobufRecords(schema_of(kind), [("a", "-7"), ("b",)])

    read = reader.read(FIRST + kind(a={-7: True}, b={True: 1, False: 2}).SerializeToString(), FRAME)

    assert read == {"a": {"-7": True}, "b": {"true": 1, "false": 2}}


@pytest.mark.parametrize(
    ("file", "message", "field"),
    [
        ("google/protobuf/timestamp", "google.protobuf.Timestamp", "string seconds = 1;"),
        ("google/protobuf/wrappers", "google.protobuf.Int64Value", "repeated int64 value = 1;"),
        ("confluent/type/decimal", "confluent.type.Decimal", ""),
        ("google/type/decimal", "google.type.Decimal", "bytes value = 1;"),
    ],
)
def test_a_publishers_own_message_of_a_known_name_is_a_message(file: str, message: str, field: str) -> None:
    """It need not have the fields that make a value."""
    package, name = message.rsplit(".", 1)
    text = f'syntax = "proto3"; package {package}; message {name} {{ {field} }}'
    kinds = compiled(
        **{file: text, "odd": f'syntax = "proto3"; import "{file}.proto"; message Odd {{ {message} x = 1; }}'}
    )

    read = ProtobufRecords(schema_of(kinds["Odd"], kinds[message]), None).read(FIRST + b"\x0a\0", FRAME)

    assert isinstance(read["x"], dict)
    with pytest.raises(BadConfiguration, match=f"the answer cannot keep a {message}"):
        answer_schema(schema_of(kinds["Odd"], kinds[message]), [], {"x": ("x",)})


DECIMALS = """
    syntax = "proto3";
    import "confluent/type/decimal.proto";
    import "confluent/types/decimal.proto";
    import "confluent/meta.proto";
    import "google/type/decimal.proto";
    message Money { confluent.type.Decimal a = 1; google.type.Decimal b = 2; }
"""
CONFLUENT = {
    "confluent/type/decimal": """
        syntax = "proto3";
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
    "confluent/types/decimal": 'syntax = "proto3"; import public "confluent/type/decimal.proto";',
    "confluent/meta": 'syntax = "proto3"; package confluent; message Meta {}',
    "google/type/decimal": 'syntax = "proto3"; package google.type; message Decimal { string value = 1; }',
}


def test_decimals_are_read_by_value() -> None:
    """Their files need no reference."""
    money = compiled(money=DECIMALS, **CONFLUENT)["Money"]
    reader = ProtobufRecords(schema_of(money), None)

    def of(**fields: Any) -> bytes:
        return FIRST + bytes(money(**fields).SerializeToString())

    assert reader.read(of(a={"value": b"\xff", "scale": 2}, b={"value": "1.10"}), FRAME) == {
        "a": Decimal("-0.01"),
        "b": Decimal("1.10"),
    }
    texts = ["secret", "1" * 1001, "NaN", "-Infinity", "1e9999", ""]
    for wrong in (*[of(b={"value": text}) for text in texts], of(a={"scale": 2**31 - 1})):
        assert refusal(wrong, schema_of(money))[:20] in ("b: expected a decima", "a: expected a decima")


@pytest.mark.parametrize(
    "text",
    [
        "no base64",
        base64.b64encode(b"\xff").decode(),
        base64.b64encode(FileDescriptorProto(dependency=["default"]).SerializeToString()).decode(),
        base64.b64encode(b"\x22\x05\x0a\1A\x12\0").decode(),
    ],
)
def test_a_schema_that_is_none_is_refused(text: str) -> None:
    """It may import itself, or have a field without a name."""
    with pytest.raises(Reject, match=r"^schema 7 (cannot be read as a Protobuf schema|imports a file that)"):
        ProtobufRecords(RegisteredSchema(7, None, "PROTOBUF", text), None)


@pytest.mark.parametrize("name", ["other.proto", "google/type/nothing.proto"])
def test_an_import_that_is_not_here_is_named(name: str) -> None:
    """Neither its references nor the library has it."""
    text = base64.b64encode(FileDescriptorProto(dependency=[name]).SerializeToString()).decode()

    with pytest.raises(Reject, match=r"^schema 7 imports a file that is not here: "):
        ProtobufRecords(RegisteredSchema(7, None, "PROTOBUF", text), None)


def test_messages_of_a_thousand_types_in_one_another_are_refused() -> None:
    """The library makes all of their types."""
    file = FileDescriptorProto(syntax="proto3")
    for at in range(1000):
        message = file.message_type.add(name=f"T{at}")
        message.field.add(name="x", number=1, type=11, type_name=f".T{min(at + 1, 999)}")
    text = base64.b64encode(file.SerializeToString()).decode()

    reader = ProtobufRecords(RegisteredSchema(7, None, "PROTOBUF", text), None)

    for _ in range(2):
        with pytest.raises(Reject, match=r"^the record: nested too deeply \(Protobuf, schema 7\)$"):
            reader.read(FIRST, FRAME)


def test_a_file_may_be_referred_to_twice() -> None:
    """Two references have it, by the same name."""
    twice = SCHEMA._replace(references=(*SCHEMA.references, NamedReference("items.proto", SCHEMA.references[0].text)))

    assert ProtobufRecords(twice, [("id",)]).read(FIRST, FRAME) == {"id": ""}

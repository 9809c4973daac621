"""Answers with a schema, in each encoding: the official client's deserializers read what the worker writes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.unit.codecs.records.registry import AVRO, JSON_SCHEMA, PROTO, Registry, compiled, schema_of
from worker.codecs.records.answer_fields import AnswerField, AnswerRecordWriter, AnswerSchema, Kept
from worker.codecs.records.answer_schemas import answer_schema, whole_record
from worker.codecs.records.framing import Frame
from worker.codecs.records.protobuf import ProtobufRecords
from worker.core.failures import BadConfiguration, Code, Reject
from worker.core.schemas import RegisteredSchema, SchemaType

ANSWER = SerializationContext("answers", MessageField.VALUE)
RECORDS: dict[SchemaType, RegisteredSchema] = {
    "AVRO": RegisteredSchema(7, None, "AVRO", json.dumps(AVRO)),
    "PROTOBUF": schema_of(compiled(payment=PROTO)["shop.Payment"]),
    "JSON": RegisteredSchema(7, None, "JSON", json.dumps(JSON_SCHEMA)),
}
KEPT: Kept = {"payment_id": ("payment_id",), "name": ("customer", "name"), "country": ("country",)}
FIELDS = [
    AnswerField("score", "FP32"),
    AnswerField("label", "BYTES"),
    AnswerField("embedding", "FP64", (3,)),
    AnswerField("count", "INT64"),
    AnswerField("is_fraud", "BOOL"),
]
COLUMNS: list[list[Any]] = [
    ["p-1", "p-2"],
    ["Ada", None],
    ["DE", None],
    [0.5, 0.25],
    ["fraud", "ok"],
    [[0.1, 0.2, 0.3], []],
    [2**40, -1],
    [True, False],
]


class Answers(NamedTuple):
    """A schema of answers that is registered, its writer, and what the official client makes of an answer."""

    schema: AnswerSchema
    writer: AnswerRecordWriter
    read: Callable[[bytes], dict[str, Any]]


def answers(kind: SchemaType, fields: Sequence[AnswerField] = FIELDS, kept: Kept = KEPT) -> Answers:
    registry = Registry()
    registry.client.register_schema("another", Schema('"int"', "AVRO"))
    schema = answer_schema(RECORDS[kind], fields, kept)
    number = registry.client.register_schema("answers-value", Schema(schema.text, schema.type))
    return Answers(schema, schema.writer(number), lambda value: DESERIALIZERS[kind](registry, schema.text, value))


def read_avro(registry: Registry, _text: str, value: bytes) -> dict[str, Any]:
    record: dict[str, Any] = AvroDeserializer(registry.client)(value, ANSWER)
    return record


def read_json(registry: Registry, text: str, value: bytes) -> dict[str, Any]:
    """The deserializer validates the answer by its schema."""
    record: dict[str, Any] = JSONDeserializer(text, schema_registry_client=registry.client)(value, ANSWER)
    return record


def read_protobuf(registry: Registry, text: str, value: bytes) -> dict[str, Any]:
    pool, file = DescriptorPool(), FileDescriptorProto.FromString(base64.b64decode(text))
    pool.Add(file)
    kind = GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{file.message_type[0].name}"))
    message = ProtobufDeserializer(kind, {"use.deprecated.format": False}, registry.client)(value, ANSWER)
    return {
        field.name: list(given) if field.is_repeated else given
        for field in message.DESCRIPTOR.fields
        if (given := getattr(message, field.name)) is not None and (field.is_repeated or message.HasField(field.name))
    }


DESERIALIZERS: dict[SchemaType, Callable[[Registry, str, bytes], dict[str, Any]]] = {
    "AVRO": read_avro,
    "PROTOBUF": read_protobuf,
    "JSON": read_json,
}
each_kind = pytest.mark.parametrize("kind", list(RECORDS))


def without_nulls(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None and value != []}


@each_kind
def test_an_answer_has_the_kept_fields_and_those_of_the_model(kind: SchemaType) -> None:
    """A null is nothing in Protobuf, and an empty list is nothing, too."""
    made = answers(kind)

    first, second = map(made.read, made.writer.write(COLUMNS))

    assert without_nulls(first) == {
        "payment_id": "p-1",
        "name": "Ada",
        "country": "DE",
        "score": 0.5,
        "label": "fraud",
        "embedding": [0.1, 0.2, 0.3],
        "count": 2**40,
        "is_fraud": True,
    }
    assert without_nulls(second) == {"payment_id": "p-2", "score": 0.25, "label": "ok", "count": -1, "is_fraud": False}


@each_kind
def test_an_error_is_an_answer_of_the_same_schema(kind: SchemaType) -> None:
    """It has nothing else."""
    made = answers(kind)

    assert without_nulls(made.read(made.writer.error("amount: missing, grüße"))) == {"error": "amount: missing, grüße"}
    assert made.writer.content_type == f"application/vnd.confluent.{kind.lower()}"


@each_kind
@pytest.mark.parametrize("at", [0, 3, 7])
def test_a_value_of_another_type_is_refused(kind: SchemaType, at: int) -> None:
    """The message names the field, and says whose value it is."""
    columns = [*COLUMNS]
    columns[at] = [columns[at][0], object()]
    name = [*KEPT, *[field.name for field in FIELDS]][at]

    with pytest.raises(Reject) as refusal:
        answers(kind).writer.write(columns)

    said = f"{name}: the answer keeps this field, and its value is" if at < 3 else f"output {name}: its value is"
    assert refusal.value.message == f"{said} not of the type in the answer's schema"
    assert refusal.value.code is (Code.INVALID_ARGUMENT if at < 3 else Code.INTERNAL)


@each_kind
@pytest.mark.parametrize(
    ("fields", "kept", "message"),
    [
        (["error"], {}, "error: the answer has a field of this name, for errors"),
        ([], {"error": ("payment_id",)}, "error: answers with a schema have a field of this name"),
        (["a", "a"], {}, "a: the answer has this field already"),
        (["payment_id"], KEPT, "payment_id: the answer has this field already"),
    ],
)
def test_fields_of_one_name_are_refused_at_start(kind: SchemaType, fields: list[str], kept: Kept, message: str) -> None:
    """No field is renamed."""
    with pytest.raises(BadConfiguration) as refusal:
        answer_schema(RECORDS[kind], [AnswerField(name, "FP32") for name in fields], kept)

    assert str(refusal.value).startswith(f"[records.answer] {message}")


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
@pytest.mark.parametrize("name", ["", "the score", "1st", "größe"])
def test_a_name_that_the_encoding_does_not_allow_is_refused_at_start(kind: SchemaType, name: str) -> None:
    """The cure is another name."""
    with pytest.raises(BadConfiguration, match=f"^.records.answer. {name}: .* choose another one$"):
        answer_schema(RECORDS[kind], [AnswerField(name, "FP32")], {})


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
@pytest.mark.parametrize("path", [("gone",), ("amount", "x"), ("customer", "gone"), ("tags", "x"), ("country", "x")])
def test_a_kept_field_that_the_records_lack_is_refused_at_start(kind: SchemaType, path: tuple[str, ...]) -> None:
    """Its path is named."""
    with pytest.raises(BadConfiguration, match=rf"^\[records.answer\] it: the records have no field {'.'.join(path)}"):
        answer_schema(RECORDS[kind], [], {"it": path})


@each_kind
def test_a_schema_of_records_that_cannot_be_read_is_refused_at_start(kind: SchemaType) -> None:
    """The message says which one."""
    with pytest.raises(BadConfiguration, match=r"^\[records\] schema 7 "):
        answer_schema(RECORDS[kind]._replace(text="["), FIELDS, {})


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_all_of_a_record_may_be_kept(kind: SchemaType) -> None:
    """Its fields have their own names and types."""
    kept = whole_record(RECORDS[kind])
    made = answers(kind, FIELDS[:1], kept)
    record = {
        "payment_id": "p",
        "amount": 1.5,
        "age_days": 3,
        "is_new": True,
        "channel": "APP",
        "country": "DE",
        "customer": {"name": "Ada", "visits": 3},
        "items": [{"sku": "a", "price": 0.5}, {"sku": "b", "price": 0.25}],
        "tags": ["red"],
    }
    chosen = {name: value for name, value in record.items() if name in kept}
    assert len(chosen) == len(kept)

    (answer,) = made.writer.write([*[[value] for value in chosen.values()], [0.5]])

    assert without_nulls(made.read(answer)) == {**chosen, "score": 0.5}


# Avro

RICH = {
    "type": "record",
    "name": "Rich",
    "namespace": "shop",
    "fields": [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {
            "name": "money",
            "type": {
                "type": "fixed",
                "name": "Money",
                "size": 6,
                "logicalType": "decimal",
                "precision": 9,
                "scale": 3,
            },
        },
        {"name": "hash", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "same", "type": "Two"},
        {"name": "raw", "type": "bytes"},
        {"name": "any", "type": ["string", "long", "null", {"type": "map", "values": "double"}]},
        {
            "name": "tree",
            "type": {"type": "record", "name": "Tree", "fields": [{"name": "t", "type": ["null", "Tree"]}]},
        },
        {"name": "odd", "type": {"type": "long", "logicalType": "of-nobody"}},
        {"name": "flag", "type": "boolean"},
        {"name": "ratio", "type": "float"},
        {"name": "number", "type": "int"},
        {"name": "nothing", "type": "null"},
    ],
}
ROW = {
    "day": date(1950, 1, 2),
    "millis": datetime(2026, 11, 27, 1, 2, 3, 4000, UTC),
    "micros": datetime(1930, 11, 27, 1, 2, 3, 4567, UTC),
    "local": datetime(2026, 11, 27, 1, 2, 3, 4567),  # noqa: DTZ001  # a local time
    "price": Decimal("-1.28"),
    "money": Decimal("12345.678"),
    "hash": b"ab",
    "same": b"cd",
    "raw": b"\0\xff",
    "any": {"a": 0.5},
    "tree": {"t": {"t": None}},
    "odd": -7,
    "flag": False,
    "ratio": 0.5,
    "number": -(2**31),
    "nothing": None,
}


def rich() -> tuple[AnswerRecordWriter, Callable[[bytes], dict[str, Any]]]:
    record = RegisteredSchema(7, None, "AVRO", json.dumps(RICH))
    registry, schema = Registry(), answer_schema(record, [], whole_record(record))
    writer = schema.writer(registry.client.register_schema("answers-value", Schema(schema.text, "AVRO")))
    return writer, lambda value: read_avro(registry, "", value)


def test_each_type_of_avro_is_kept_as_it_is() -> None:
    """Logical types, named types in several places and unions of several types are among them."""
    writer, read = rich()

    (answer,) = writer.write([[value] for value in ROW.values()])

    assert read(answer) == {**ROW, "error": None}


def test_a_kept_record_has_its_defaults() -> None:
    """With a field that it gains, or an enum a symbol, the answer's schema still fits the earlier one."""
    before: Any = {
        "type": "record",
        "name": "Buyer",
        "fields": [{"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"], "default": "A"}}],
    }
    rank = {"name": "rank", "type": ["null", "int"], "default": None, "aliases": ["level"]}
    after = {**before, "fields": [*before["fields"], rank]}
    record = {"type": "record", "name": "Payment", "fields": [{"name": "by", "type": after}]}

    schema = answer_schema(RECORDS["AVRO"]._replace(text=json.dumps(record)), [], {"by": ("by",)})

    kept = json.loads(schema.text)["fields"][0]["type"][1]["fields"]
    assert (kept[0]["type"]["default"], kept[1]) == ("A", rank)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("any", ["text", 7, None, {}]),
        ("price", [Decimal("0.00"), Decimal("1.27"), Decimal("1.28"), Decimal("-1.29"), None]),
        ("odd", [0, 63, 64, -64, -65, 2**63 - 1, -(2**63)]),
        ("raw", [b"", bytes(300)]),
    ],
)
def test_values_at_the_edges_of_their_types_are_kept(name: str, values: list[Any]) -> None:
    """All others are null meanwhile."""
    writer, read = rich()

    written = writer.write([values if field == name else [None] * len(values) for field in ROW])

    assert [read(answer)[name] for answer in written] == values


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", 2**31),
        ("number", True),
        ("odd", 2**63),
        ("odd", 0.5),
        ("hash", b"abc"),
        ("raw", "text"),
        ("flag", 1),
        ("ratio", True),
        ("price", Decimal("1.234")),
        ("price", Decimal("NaN")),
        ("money", Decimal(10) ** 20),
        ("any", [1]),
        ("any", {"a": True}),
        ("tree", [1]),
        ("day", 7),
        ("millis", datetime(2026, 1, 1)),  # noqa: DTZ001  # no instant
        ("nothing", 1),
    ],
)
def test_a_value_that_its_type_has_no_place_for_is_refused(name: str, value: Any) -> None:
    """It is never written as another one."""
    writer, _ = rich()

    with pytest.raises(Reject, match=f"^{name}: the answer keeps this field"):
        writer.write([[value] if field == name else [None] for field in ROW])


def test_lists_and_enums_are_judged_too() -> None:
    """A text is no list, and a symbol must be known."""
    made = answers("AVRO", [AnswerField("t", "BYTES")], {"tags": ("tags",), "channel": ("channel",)})
    expected = {"tags": ["a"], "channel": "WEB", "t": "text", "error": None}

    assert made.read(made.writer.write([[["a"]], ["WEB"], [b"text"]])[0]) == expected
    wrong: list[list[Any]] = [[["ab"], ["WEB"], ["t"]], [[[]], ["OTHER"], ["t"]], [[[]], ["WEB"], [b"\xff"]]]
    for columns in wrong:
        with pytest.raises(Reject):
            made.writer.write(columns)


# Protobuf

BOXES_FILE = """
    syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    message Boxes {
      google.protobuf.Timestamp at = 1;
      google.protobuf.Int64Value boxed = 2;
      repeated int32 counts = 3;
      Kind kind = 4;
      Inner inner = 5;
      map<string, int32> numbers = 6;
    }
    enum Kind { WEB = 0; }
    message Inner { uint64 id = 1; }
"""
BOXES = compiled(boxes=BOXES_FILE)["Boxes"]


def test_protobuf_keeps_instants_boxes_lists_and_names() -> None:
    """A box is what is in it, and an enum is its name."""
    kept: Kept = {name: (name,) for name in ("at", "boxed", "counts", "kind")} | {"inner_id": ("inner", "id")}
    schema = answer_schema(schema_of(BOXES), [], kept)
    at = datetime(2026, 11, 27, 1, 2, 3, 4567, UTC)

    (value,) = schema.writer(9).write([[at], [7], [[1, 2]], ["WEB"], [2**64 - 1]])

    read = ProtobufRecords(RegisteredSchema(9, None, "PROTOBUF", schema.text), None).read(value, Frame(9, 5))
    assert read == {"at": at, "boxed": 7, "counts": [1, 2], "kind": "WEB", "inner_id": 2**64 - 1}


def test_a_protobuf_schema_is_a_text_where_that_of_the_records_is_one() -> None:
    """It says all that the descriptor does, and the answers are the very same."""
    kept: Kept = {name: (name,) for name in ("at", "boxed", "counts", "kind")}
    record = schema_of(
        compiled(shop=BOXES_FILE.replace("import", "package google.shop; import", 1))["google.shop.Boxes"]
    )
    at = datetime(2026, 11, 27, tzinfo=UTC)
    columns: list[list[Any]] = [[at], [7], [[1, 2]], ["WEB"], [0.5], ["ok"], [[0.5, 1.0]], [3], [True]]

    described, told = (answer_schema(each, FIELDS, kept) for each in (record, record._replace(was_text=True)))

    file = FileDescriptorProto()
    compiled(answer=told.text)["google.shop.BoxesAnswer"].DESCRIPTOR.file.CopyToProto(file)
    for field in file.message_type[0].field:
        field.ClearField("json_name")
    assert file == FileDescriptorProto.FromString(base64.b64decode(described.text))
    assert told.writer(9).write(columns) == described.writer(9).write(columns)


@pytest.mark.parametrize("name", ["inner", "numbers"])
def test_protobuf_keeps_no_messages(name: str) -> None:
    """Their fields can be kept one by one."""
    with pytest.raises(BadConfiguration, match=rf"^\[records.answer\] {name}: the answer cannot keep a "):
        answer_schema(schema_of(BOXES), [], {name: (name,)})


HELPERS_FIRST = """
    syntax = "proto3";
    message Line { string sku = 1; }
    message Customer { string name = 1; }
    message Order { message Note { string text = 1; } repeated Line lines = 1; map<string, Customer> by = 2; }
    message Refund { string id = 1; Refund before = 2; }
"""


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ({}, "OrderAnswer"),
        ({"id": ("id",)}, "RefundAnswer"),
        ({"sku": ("sku",)}, "LineAnswer"),
        ({"text": ("text",)}, "NoteAnswer"),
    ],
)
def test_the_records_of_protobuf_are_the_message_that_has_the_kept_fields(kept: Kept, message: str) -> None:
    """Messages that others hold come last, wherever they stand in the file."""
    record = schema_of(compiled(helpers=HELPERS_FIRST)["Order"])

    text = answer_schema(record, FIELDS, kept).text

    assert FileDescriptorProto.FromString(base64.b64decode(text)).message_type[0].name == message
    assert list(whole_record(record)) == ["lines", "by"]


def test_a_file_without_messages_is_refused_at_start() -> None:
    """It may be one that others import."""
    empty = RegisteredSchema(7, None, "PROTOBUF", base64.b64encode(FileDescriptorProto().SerializeToString()).decode())

    with pytest.raises(BadConfiguration, match=r"^\[records\] schema 7 has no message"):
        answer_schema(empty, FIELDS, {})


def test_protobuf_has_no_lists_of_lists() -> None:
    """The message says which field has them."""
    with pytest.raises(BadConfiguration, match=r"^\[records.answer\] m: Protobuf has no lists of lists"):
        answer_schema(schema_of(BOXES), [AnswerField("m", "FP32", (2, 2))], {})


@pytest.mark.parametrize("elsewhere", ["customer.json", "https://example.com/customer.json", "#/properties/other"])
def test_a_kept_field_may_be_anything_where_its_schema_is_elsewhere(elsewhere: str) -> None:
    """A registry refuses a reference to a schema that it lacks."""
    definitions = {"customer": {"properties": {"home": {"$ref": elsewhere}}}}
    fields = {"id": {"type": "string"}, "customer": {"$ref": "#/definitions/customer"}}
    schema = RECORDS["JSON"]._replace(text=json.dumps({"properties": fields, "definitions": definitions}))

    text = json.loads(answer_schema(schema, FIELDS[:1], {"id": ("id",), "who": ("customer",)}).text)

    assert "$ref" not in json.dumps(text)
    assert list(text["properties"]) == ["id", "who", "score", "error"]


@pytest.mark.parametrize("place", ["$defs", "definitions"])
def test_a_schema_may_refer_to_its_own_definitions(place: str) -> None:
    """Go's serializer writes the record itself so. References that go around lead to nothing."""
    defined = {
        "Payment": {"title": "Payment", "properties": {"id": {"type": "integer"}, "by": {"$ref": f"#/{place}/Buyer"}}},
        "Buyer": {"properties": {"name": {"type": "string"}, "own": {"$ref": f"#/{place}/Round"}}},
        "Round": {"$ref": f"#/{place}/Round"},
    }
    record = RECORDS["JSON"]._replace(text=json.dumps({"$ref": f"#/{place}/Payment", place: defined}))

    text = json.loads(answer_schema(record, [], {"id": ("id",), "name": ("by", "name"), "x": ("by", "own", "x")}).text)

    assert text["title"] == "PaymentAnswer"
    assert text["properties"] == {
        "id": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
        "name": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "x": True,
        "error": {"anyOf": [{"type": "null"}, {"type": "string"}]},
    }
    assert list(whole_record(record)) == ["id", "by"]


def test_json_keeps_what_its_schema_says_nothing_of() -> None:
    """Such a field may be anything."""
    schema = answer_schema(
        RECORDS["JSON"], [AnswerField("m", "FP32", (2, 2))], {"x": ("gone", "x"), "c": ("customer",)}
    )
    properties = json.loads(schema.text)["properties"]

    assert properties["x"] is True
    assert properties["c"] == {"anyOf": [{"type": "null"}, {"$ref": "#/definitions/customer"}]}
    assert properties["m"]["anyOf"][1] == {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
    assert whole_record(RECORDS["JSON"]._replace(text="7")) == {}
    assert list(whole_record(schema_of(BOXES))) == ["at", "boxed", "counts", "kind", "inner", "numbers"]

"""Avro records: each type as fastavro writes it, the wanted fields, changed schemas, and values that are wrong."""

from __future__ import annotations

import io
import json
import weakref
from collections.abc import Collection
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from worker.codecs.records import avro
from worker.codecs.records.avro import AvroRecords
from worker.codecs.records.framing import Frame
from worker.core.failures import Reject
from worker.core.schemas import NamedReference, RegisteredSchema

FRAME = Frame(7, 0)
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
MANY = b"\x80\x80\x80\x80\x10"  # 2**31 as a count
INTS = {"type": "array", "items": "int"}
ENUM_300 = {"type": "enum", "name": "Land", "symbols": [f"L{at}" for at in range(300)]}
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}


def of(*fields: Any, name: str = "Record", **more: Any) -> dict[str, Any]:
    """A record's schema; a field alone is named `x`."""
    made = [field if isinstance(field, dict) and "name" in field else {"name": "x", "type": field} for field in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def x(kind: Any, **more: Any) -> dict[str, Any]:
    return of({"name": "x", "type": kind, **more})


def written(schema: Any, record: Any) -> bytes:
    into = io.BytesIO()
    fastavro.schemaless_writer(into, fastavro.parse_schema(schema), record)
    return into.getvalue()


def reader(schema: Any, wanted: Collection[tuple[str, ...]] | None = None, *others: Any) -> AvroRecords:
    references = tuple([NamedReference(other["name"], json.dumps(other)) for other in others])
    return AvroRecords(RegisteredSchema(7, None, "AVRO", json.dumps(schema), references), wanted)


def read(schema: Any, value: bytes, wanted: Collection[tuple[str, ...]] | None = None) -> dict[str, Any]:
    return reader(schema, wanted).read(value, FRAME)


NUMBERS = [0, -1, 63, -64, 64, 1000, -(2**31), 2**31 - 1]
CASES: list[tuple[Any, list[Any]]] = [
    ("null", [None]),
    ("boolean", [True, False]),
    ("int", NUMBERS),
    ("long", [*NUMBERS, -(2**63), 2**63 - 1]),
    ("float", [0.5, -1.0, float("inf")]),
    ("double", [0.1, -1e300, 5e-324]),
    ("bytes", [b"", b"\0\xff", bytes(1000)]),
    ("string", ["", "grüße", "a" * 63, "b" * 64, "c" * 10_000]),
    ({"type": "string"}, ["as an object"]),
    ({"type": "fixed", "name": "Two", "size": 2}, [b"ab"]),
    ({"type": "enum", "name": "Channel", "symbols": ["WEB", "APP"]}, ["WEB", "APP"]),
    (ENUM_300, ["L0", "L63", "L64", "L299"]),
    ({"type": "array", "items": "string"}, [[], ["a", "b"]]),
    ({"type": "array", "items": "double"}, [[], [0.5, 0.25]]),
    ({"type": "array", "items": "int"}, [[], [1, -300], NUMBERS * 10]),
    ({"type": "array", "items": "long"}, [[2**63 - 1, -(2**63), *range(-70, 70), 2**62, -(2**62) - 1]]),
    ({"type": "array", "items": "float"}, [[], [0.5, 0.25]]),
    ({"type": "array", "items": {"type": "array", "items": "int"}}, [[[1, 2], [], [3]]]),
    ({"type": "map", "values": "long"}, [{}, {"a": 1, "b": -2}]),
    ({"type": "map", "values": "float"}, [{"a": 0.5}]),
    (["null", "string"], [None, "text"]),
    (["string", "long", "null", POINT], ["text", 7, None, {"x": 1, "y": 2}]),
    (POINT, [{"x": 1, "y": -2}]),
    (NODE, [{"next": {"next": {"next": None}}}]),
    ({"type": "int", "logicalType": "date"}, [date(1969, 12, 31), date(2026, 11, 27)]),
    ({"type": "long", "logicalType": "timestamp-millis"}, [datetime(2026, 11, 27, 1, 2, 3, 4000, UTC)]),
    ({"type": "long", "logicalType": "timestamp-micros"}, [datetime(1930, 1, 1, 1, 2, 3, 456_789, UTC)]),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, [datetime(2026, 11, 27, 1, 2, 3, 4000)]),  # noqa: DTZ001  # a local time
    ({"type": "long", "logicalType": "local-timestamp-micros"}, [datetime(2026, 11, 27, 1, 2, 3, 456)]),  # noqa: DTZ001  # a local time
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2},
        list(map(Decimal, ["1.10", "-0.01", "0"])),
    ),
    (
        {"type": "fixed", "name": "Money", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 4},
        [Decimal("-1234567890.1234")],
    ),
    ({"type": "long", "logicalType": "of-nobody"}, [7]),
    ({"type": "string", "logicalType": "decimal"}, ["a text"]),
]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=lambda kind: str(kind)[:40])
def test_each_type_is_read_as_it_was_written(kind: Any, values: list[Any]) -> None:
    """fastavro wrote it. Next to a wanted field it is gone over."""
    schema = of({"name": "before", "type": "int"}, *x(kind)["fields"], {"name": "after", "type": "int"})
    for value in values:
        body = written(x(kind), {"x": value})

        assert read(x(kind), body) == {"x": value}
        assert read(schema, b"\2" + body + b"\4", [("before",), ("after",)]) == {"before": 1, "after": 2}


def test_the_reference_library_writes_what_is_read() -> None:
    """The value is from Apache's `avro` 1.12 for Python."""
    item = of({"name": "price", "type": "float"}, {"name": "next", "type": ["null", "Item"]}, name="Item")
    schema = of(
        {"name": "id", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "channel", "type": {"type": "enum", "name": "Channel", "symbols": ["WEB", "APP"]}},
        {"name": "items", "type": {"type": "array", "items": item}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "flag", "type": "boolean"},
        {"name": "ratio", "type": "double"},
        namespace="shop",
    )
    value = bytes.fromhex(
        "0e6772c3bcc39f6504fb1eaac48bbbf3cdb00602e0c40202040000c03f020000803e00000000400000020261d804006162019a9999999999b93f"
    )

    assert read(schema, value) == {
        "id": "grüße",
        "amount": Decimal("-12.50"),
        "at": datetime(2026, 11, 27, 1, 2, 3, 456_789, UTC),
        "day": date(2026, 11, 27),
        "channel": "APP",
        "items": [{"price": 1.5, "next": {"price": 0.25, "next": None}}, {"price": 2.0, "next": None}],
        "counts": {"a": 300},
        "hash": b"ab",
        "flag": True,
        "ratio": 0.1,
    }


def test_a_schema_of_many_fields_is_read_like_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No function is compiled for its records."""
    monkeypatch.setattr(avro, "MOST_COMPILED", 1)

    assert read(POINT, b"\2\4") == {"x": 1, "y": 2}
    assert read(POINT, b"\2\4", [("y",)]) == {"y": 2}


def test_a_logical_type_beside_the_type_is_taken() -> None:
    """Many schemas have it there, where Avro does not look."""
    assert read(x("int", logicalType="date"), b"\2") == {"x": date(1970, 1, 2)}


def test_types_that_fastavro_refuses_are_read() -> None:
    """A primitive in an object in an object is that primitive, and a logical type that cannot be is none."""
    assert read(x({"type": {"type": "string"}}), b"\2a") == {"x": "a"}
    assert read(x({"type": "bytes", "logicalType": "decimal", "scale": -1}), b"\2\1") == {"x": b"\1"}
    assert read(x({"type": "int", "logicalType": ["a"]}), b"\2") == {"x": 1}


def test_a_number_may_have_more_bytes_than_it_needs() -> None:
    """Avro does not forbid it."""
    value = b"\x82\0\x82\x80\0"

    assert read(x(["null", "int"]), value) == {"x": 1}
    assert read(x(["null", "int"]), value, []) == {}


def test_a_uuid_is_a_text_and_nanoseconds_are_a_number() -> None:
    """Python's instants would lose digits."""
    assert read(x({"type": "long", "logicalType": "timestamp-nanos"}), b"\x0e") == {"x": 7}
    assert read(x({"type": "string", "logicalType": "uuid"}), b"\6abc") == {"x": "abc"}


def test_names_are_found_in_their_namespaces() -> None:
    """A name without a dot is one of the namespace around it."""
    inner = {"type": "fixed", "name": "One", "size": 1}
    schema = of(
        {"name": "a", "type": inner},
        {"name": "b", "type": "One"},
        {"name": "c", "type": "shop.One"},
        {"name": "d", "type": {"type": "record", "name": "other.Pair", "fields": [{"name": "e", "type": "shop.One"}]}},
        namespace="shop",
    )

    assert read(schema, b"1234") == {"a": b"1", "b": b"2", "c": b"3", "d": {"e": b"4"}}


def test_a_schema_may_refer_to_others() -> None:
    """The registry gives their texts."""
    assert reader(x("Point"), None, POINT).read(b"\2\4", FRAME) == {"x": {"x": 1, "y": 2}}


def test_of_nested_records_only_wanted_fields_are_read() -> None:
    """Different fields of one named type may be wanted in different places."""
    pair = of({"name": "left", "type": ["null", POINT]}, {"name": "right", "type": "Point"})
    value = written(pair, {"left": {"x": 1, "y": 2}, "right": {"x": 3, "y": 4}})

    assert read(pair, value, [("left", "x"), ("right",)]) == {"left": {"x": 1}, "right": {"x": 3, "y": 4}}
    assert read(pair, value, []) == {}


def test_a_path_through_an_array_projects_its_items() -> None:
    """Without the step to the items all of them is wanted."""
    schema = x({"type": "array", "items": POINT})
    value = written(schema, {"x": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]})

    assert read(schema, value, [("x", "*", "y")]) == {"x": [{"y": 2}, {"y": 4}]}
    assert read(schema, value, [("x", "y")]) == {"x": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}


def test_a_recursive_type_is_read_and_gone_over() -> None:
    """Its functions call themselves."""
    schema = of({"name": "a", "type": NODE}, {"name": "b", "type": "Node"})
    value = written(schema, {"a": {"next": {"next": None}}, "b": {"next": {"next": {"next": None}}}})

    assert read(schema, value, [("a", "next", "next")]) == {"a": {"next": {"next": None}}}


def test_a_renamed_field_is_found_by_its_alias() -> None:
    """It has the name that is wanted, unless another field has that."""
    renamed = of({"name": "total", "type": "int", "aliases": ["amount", "sum"]}, {"name": "sum", "type": "int"})

    assert read(renamed, b"\2\4", [("amount",)]) == {"amount": 1}
    assert read(renamed, b"\2\4", [("amount",), ()]) == {"amount": 1, "sum": 2}
    assert read(renamed, b"\2\4", [("sum",)]) == {"sum": 2}
    assert read(renamed, b"\2\4") == {"total": 1, "sum": 2}


def test_blocks_may_say_how_many_bytes_they_have() -> None:
    """A writer that streams does so, with a negative count."""
    schema = of({"name": "a", "type": {"type": "array", "items": "string"}}, {"name": "b", "type": "int"})
    value = b"\3\x08\2a\2b" + b"\2\2c" + b"\0" + b"\2"

    assert read(schema, value) == {"a": ["a", "b", "c"], "b": 1}
    assert read(schema, b"\2\2c\0\2", [("b",)]) == {"b": 1}
    assert read(schema, value, [("b",)]) == {"b": 1}


# Wrong numbers, lengths and indexes, by which the place of all that follows is unknown.
LENGTHS: list[tuple[str, Any, bytes, str]] = [
    ("an int without an end", "int", b"\xff" * 11, "x: expected a number of at most 64 bits"),
    ("an int of 70 bits", "int", b"\xff" * 9 + b"\x7f", "x: expected a number of at most 64 bits"),
    ("an int that is cut", "int", b"\x80", "x: the value ends too early"),
    ("a double that is cut", "double", b"\0" * 7, "x: the value ends too early"),
    ("a text of negative length", "string", b"\1", "x: expected a length, got a negative one"),
    ("a text longer than the value", "string", b"\x08ab", "the record: the value ends before it"),
    ("a text of 2**62 bytes", "string", b"\xfe" + b"\xff" * 8 + b"\1", "the record: the value ends before it"),
    ("bytes of negative length", "bytes", b"\3", "x: expected a length, got a negative one"),
    ("a branch that is not there", ["null", "int"], b"\4\0", "x: expected a branch of the union, got an index"),
    ("a negative branch", ["null", "int"], b"\1\0", "x: expected a branch of the union, got an index"),
    ("no branch", [], b"\0", "x: expected a branch of the union, got an index"),
    ("a wrong field", POINT, b"\2", "x.y: the value ends too early"),
    (
        "2**31 texts",
        {"type": "array", "items": "string"},
        MANY,
        "x[0]: expected at most 100,000",
    ),
    (
        "2**31 nulls",
        {"type": "array", "items": "null"},
        MANY,
        "x[0]: expected at most 100,000",
    ),
    ("2**31 doubles", {"type": "array", "items": "double"}, MANY, "x: the value ends too early"),
    ("2**31 ints", INTS, MANY, "x: the value ends too early"),
    ("100 ints, one cut", INTS, b"\xc8\1" + b"\x80" * 100, "x: the value ends too early"),
    ("100 ints, one of 70 bits", INTS, b"\xc8\1" + bytes(99) + b"\xff" * 9 + b"\2", "x: expected a number of"),
    ("100 ints, one of 77 bits", INTS, b"\xc8\1" + bytes(99) + b"\xff" * 10 + b"\1", "x: expected a number of"),
    ("2**31 entries", {"type": "map", "values": "null"}, MANY, "x: expected at most 100,000 values"),
    (
        "-2**63 items",
        {"type": "array", "items": "null"},
        b"\xff" * 9 + b"\1\0",
        "x[0]: expected at most 100,000",
    ),
    ("nesting of 10,000", NODE, b"\2" * 10_000 + b"\0", "x.next.next.next.next.next.next.next…: nested too deeply"),
]
# Wrong values of a right length.
CONTENTS: list[tuple[str, Any, bytes, str]] = [
    ("a boolean of 2", "boolean", b"\2", "x: expected a boolean"),
    ("a text that is no UTF-8", "string", b"\2\xff", "x: expected a text in UTF-8"),
    ("a symbol that is not there", ENUM_300, b"\xfe\x7f", "x: expected a symbol of the enum, got an index"),
    ("a negative symbol", ENUM_300, b"\1", "x: expected a symbol of the enum, got an index"),
    ("a wrong item", {"type": "array", "items": "boolean"}, b"\4\1\7", "x[1]: expected a boolean"),
    ("a wrong item of a map", {"type": "map", "values": "boolean"}, b"\2\2a\7", "x[…]: expected a boolean"),
    (
        "a day of the year 10**6",
        {"type": "int", "logicalType": "date"},
        b"\xfe\xff\xff\xff\x0f",
        "x: expected an instant",
    ),
    (
        "a decimal of 2,000 bytes",
        {"type": "bytes", "logicalType": "decimal", "precision": 9000},
        b"\xa0\x1f" + b"\1" * 2000,
        "x: expected a decimal of at most 1,000 digits",
    ),
]


def by_name(cases: list[tuple[str, Any, bytes, str]], *arguments: str) -> pytest.MarkDecorator:
    shown = [pytest.param(*rest[: len(arguments)], id=name) for name, *rest in cases]
    return pytest.mark.parametrize(arguments, shown)


@pytest.mark.parametrize("most_compiled", [300, 0])
@by_name(LENGTHS + CONTENTS, "kind", "value", "message")
def test_a_wrong_value_is_refused_with_its_path(
    kind: Any, value: bytes, message: str, most_compiled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what was expected there, and of which schema; also in a schema of many fields."""
    monkeypatch.setattr(avro, "MOST_COMPILED", most_compiled)

    with pytest.raises(Reject) as refusal:
        read(x(kind), value)

    assert refusal.value.message.startswith(message)
    assert refusal.value.message.endswith("(Avro, schema 7)")


@by_name(LENGTHS, "kind", "value")
def test_a_wrong_length_is_refused_where_nobody_wants_the_field(kind: Any, value: bytes) -> None:
    """Else the next field would be read from a wrong place."""
    with pytest.raises(Reject):
        read(of(*x(kind)["fields"], {"name": "y", "type": "int"}), value, [("y",)])


@by_name(CONTENTS, "kind", "value")
def test_a_wrong_value_does_no_harm_where_nobody_wants_it(kind: Any, value: bytes) -> None:
    """Only its length is read."""
    ends = b"\0" if isinstance(kind, dict) and kind["type"] in ("array", "map") else b""

    assert read(of(*x(kind)["fields"], {"name": "y", "type": "int"}), value + ends + b"\2", [("y",)]) == {"y": 1}


def test_a_schema_of_too_many_values_is_refused() -> None:
    """Forty types, each of them twice in the next one, would be 2**40 records in a value of no bytes."""
    names = [f"T{at}" for at in range(40)]
    kind: Any = {"type": "record", "name": "Leaf", "fields": [{"name": "n", "type": {"type": "null"}}]}
    for name in names:
        kind = of({"name": "a", "type": kind}, {"name": "b", "type": kind["name"]}, name=name)

    with pytest.raises(Reject, match=r"^schema 7 has more than 100,000 values in a record$"):
        reader(kind)


def test_records_of_a_thousand_types_in_one_another_are_refused() -> None:
    """They may be defined one beside the other."""
    kinds = [of({"name": "x", "type": f"T{at + 1}"}, name=f"T{at}") for at in range(1000)]

    with pytest.raises(Reject, match=r"^schema 7 cannot be read as an Avro schema$"):
        reader(of({"name": "x", "type": "T0"}), None, *kinds, POINT | {"name": "T1000"})


def test_records_in_records_of_their_own_kind_are_counted() -> None:
    """Two in each are as many as a schema allows in no bytes at all."""
    tree = of({"name": "a", "type": ["null", "Tree"]}, {"name": "b", "type": ["null", "Tree"]}, name="Tree")
    bushy = b""
    for _ in range(16):
        bushy = b"\2" + (bushy or b"\0\0") + b"\2" + (bushy or b"\0\0")

    for wanted, schema in ((None, tree), ([("y",)], of({"name": "x", "type": tree}, {"name": "y", "type": "int"}))):
        with pytest.raises(Reject, match="expected at most 100,000 values"):
            read(schema, bushy + b"\2", wanted)


BAD_SCHEMAS = [
    '{"type":"record","name":"int","fields":[]}',
    "",
    "[" * 100_000,
    "7",
    '"string"',
    "[]",
    '{"type":"record"}',
    '{"type":"record","name":7,"fields":[]}',
    '{"type":"record","name":"R","fields":7}',
    '{"type":"record","name":"R","fields":[{"name":7,"type":"int"}]}',
    '{"type":"record","name":"R","fields":[{"name":"x","type":"Nobody"}]}',
    '{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"array"}}]}',
    '{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"fixed","name":"F","size":-1}}]}',
    '{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"enum","name":"E","symbols":[7]}}]}',
    '{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"int","logicalType":"date"},"aliases":7}]}',
]


@pytest.mark.parametrize("text", BAD_SCHEMAS, ids=lambda text: text[:60])
def test_a_schema_that_is_none_of_a_record_is_refused(text: str) -> None:
    """A registry may hold anything."""
    with pytest.raises(Reject, match=r"^schema 7 ((cannot be read as an|is no) Avro schema|has no type Nobody$)"):
        AvroRecords(RegisteredSchema(7, None, "AVRO", text), None)


def test_a_schema_without_an_id_is_called_by_its_guid() -> None:
    """A message names the schema as its records do."""
    with pytest.raises(Reject, match=r"^schema 3a53 "):
        AvroRecords(RegisteredSchema(None, "3a53", "AVRO", ""), None)


def test_a_reader_that_is_dropped_leaves_nothing_behind() -> None:
    """A publisher may register any number of schemas, and the collector of cycles hardly ever looks for them."""
    reader = AvroRecords(RegisteredSchema(7, None, "AVRO", json.dumps(of("int", name="Record"))), None)
    function = weakref.ref(reader._read)

    del reader

    assert function() is None

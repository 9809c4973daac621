"""Protobuf schemas that are `.proto` texts: they become what the official client registers, or are refused in time."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.codecs.records.registry import compiled, schema_of
from worker.codecs.records.framing import Frame
from worker.codecs.records.protobuf import ProtobufRecords
from worker.core.schemas import NamedReference, RegisteredSchema
from worker.registry import proto_compiler
from worker.registry.proto_compiler import ProtoCompiler
from worker.registry.verdicts import NoCompiler, NotReadable, RegistryAway, StillCompiling

ITEMS = 'syntax = "proto3"; package shop; message Item { string sku = 1; }'
PAYMENT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "shop/items.proto";
message Other {}
message Payment {
  message Line { Item item = 1; }
  optional string id = 1;
  google.protobuf.Timestamp at = 2;
  repeated Line lines = 3;
}
"""
FILES = compiled(**{"default": PAYMENT, "shop/items": ITEMS})
Payment, Item = FILES["shop.Payment"], FILES["shop.Item"]
VALUE = b"\2\2" + bytes(Payment(id="a", lines=[{"item": {"sku": "s"}}]).SerializeToString())
READ = {"id": "a", "lines": [{"item": {"sku": "s"}}]}


@pytest.fixture
def compiler() -> Iterator[ProtoCompiler]:
    made = ProtoCompiler()
    yield made
    made.close()


def of_text(text: str, *references: tuple[str, str]) -> RegisteredSchema:
    return RegisteredSchema(7, None, "PROTOBUF", text, tuple([NamedReference(*each) for each in references]))


@pytest.mark.parametrize(
    "items", [ITEMS, schema_of(Item).text], ids=["an import that is a text", "an import that is a descriptor"]
)
def test_a_text_is_read_as_its_descriptor_is(compiler: ProtoCompiler, items: str) -> None:
    """With its imports. The files that all know need no reference."""
    found = compiler.compiled(of_text(PAYMENT, ("shop/items.proto", items)), 60)

    assert ProtobufRecords(found, None).read(VALUE, Frame(7, 0)) == READ
    assert (found.id, found.type, found.was_text, compiler.compiled(found, 60)) == (7, "PROTOBUF", True, found)


def test_a_descriptor_may_import_a_text(compiler: ProtoCompiler) -> None:
    """The schema itself stays as it is."""
    given = schema_of(Payment)._replace(references=(NamedReference("shop/items.proto", ITEMS),))

    found = compiler.compiled(given, 60)

    assert found.text == given.text
    assert ProtobufRecords(found, None).read(VALUE, Frame(7, 0)) == READ


def test_files_of_registries_and_of_protobuf_are_there(compiler: ProtoCompiler) -> None:
    """With the options that fields may have."""
    text = """
        syntax = "proto2";
        import "confluent/meta.proto";
        import "confluent/types/decimal.proto";
        import "google/protobuf/wrappers.proto";
        message Money {
          required confluent.type.Decimal amount = 1 [(confluent.field_meta) = { tags: "PII" }];
          optional google.protobuf.Int64Value count = 2;
          optional group Rest = 3 { optional int32 number = 4; }
        }
    """

    found = compiler.compiled(of_text(text), 60)

    assert ProtobufRecords(found, None).read(b"\0\x12\2\x08\7\x1b\x20\1\x1c", Frame(7, 0)) == {
        "count": 7,
        "rest": {"number": 1},
    }


def test_a_map_may_be_written_as_its_entries(compiler: ProtoCompiler) -> None:
    """Apicurio's serializer for Java does so, also in the files of Protobuf that it registers."""
    text = """
        syntax = "proto3";
        import "google/protobuf/struct.proto";
        message Payment {
          repeated .Payment.TagsEntry tags = 1;
          message TagsEntry {
            option map_entry = true;
            string key = 1;
            int64 value = 2;
          }
          message LogEntry { string key = 1; int64 value = 2; }
          repeated LogEntry log = 2;
        }
    """
    given = of_text(text, ("google/protobuf/struct.proto", "message Struct { option map_entry = true; }"))

    found = compiler.compiled(given, 60)

    read = ProtobufRecords(found, None).read(b"\0\x0a\5\x0a\1a\x10\7\x12\5\x0a\1b\x10\x08", Frame(7, 0))
    assert read == {"tags": {"a": 7}, "log": [{"key": "b", "value": 8}]}


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_other_schemas_are_not_compiled(compiler: ProtoCompiler, kind: str) -> None:
    """Their texts have braces, too."""
    schema = of_text("{}")._replace(type=kind)  # type: ignore[arg-type]  # one of these

    assert compiler.compiled(schema, 0) is schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (
            of_text("message A {\n int32 a; }"),
            'cannot be compiled: default:2:2: Expected "required", "optional", or "repeated".',
        ),
        (of_text(ITEMS, ("b.proto", "message B { int32 b; }")), 'b.proto:1:13: Expected "required"'),
        (
            of_text('syntax = "proto3"; import "google/protobuf/any.proto"; message A { A.B c = 1; }'),
            'default:1:68: "A.B" is not defined',
        ),
        (of_text('import "b.proto"; message A {}'), "cannot be compiled: b.proto: File not found."),
        (
            of_text('import "../../etc/passwd"; message A {}'),
            'cannot be compiled: ../../etc/passwd: Backslashes, .*"..',
        ),
        (of_text("message A {}", ("../a.proto", ITEMS)), "by a name that is no path of a file"),
        (of_text("message A {}", ("/etc/a.proto", ITEMS)), "by a name that is no path of a file"),
        (of_text("message A {}", ("-I/tmp", ITEMS)), "by a name that is no path of a file"),
        (of_text("message A {}", ("a=b:c", ITEMS)), "by a name that is no path of a file"),
        (of_text("message A {}", ("a.proto", "no base64")), "refers to a schema that is none of Protobuf"),
        (of_text("message A {}" + " " * 2**20), r"is longer than 1,048,576 characters"),
        (of_text("message A {" * 10_000), "cannot be compiled: default:1:.*: Reached maximum recursion limit"),
        (of_text("message A { \ud800 }"), "cannot be compiled: default:1:13: "),
    ],
)
def test_what_is_no_file_is_refused(compiler: ProtoCompiler, schema: RegisteredSchema, why: str) -> None:
    """The reason is short, and names no folder of ours."""
    with pytest.raises(NotReadable, match=why) as refused:
        compiler.compiled(schema, 60)

    assert len(str(refused.value)) < 400
    assert "protoc-" not in str(refused.value)


def test_a_schema_that_takes_long_is_asked_about_again(
    compiler: ProtoCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few are compiled at a time, and one that takes too long is refused."""
    monkeypatch.setattr(proto_compiler, "PROGRAM", "import signal; signal.pause() or {}")
    slow = [of_text("message A {}")._replace(id=at) for at in range(proto_compiler.MOST_RUNS)]

    for schema in [*slow, *slow]:
        with pytest.raises(StillCompiling, match="is being compiled"):
            compiler.compiled(schema, 0)
    with pytest.raises(StillCompiling, match="other schemas are being compiled"):
        compiler.compiled(of_text(PAYMENT), 0)

    compiler._runs[0, None]._until = 0
    with pytest.raises(NotReadable, match="takes too long, or too much memory"):
        compiler.compiled(slow[0], 0)
    with pytest.raises(StillCompiling, match="text of a schema is being compiled"):
        compiler.compiled(of_text(PAYMENT), 0)


def test_a_file_that_ends_the_compiler_is_refused(compiler: ProtoCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its limits of memory and time do. It is tried again after a while, because others may have ended it."""
    good = of_text("message A {}")
    with monkeypatch.context() as ending:
        ending.setattr(proto_compiler, "PROGRAM", "import os; os.abort() or {}")
        with pytest.raises(NotReadable, match="takes too long, or too much memory"):
            compiler.compiled(good, 60)

    with pytest.raises(NotReadable, match="takes too long, or too much memory"):
        compiler.compiled(good, 60)
    compiler._costly = {name: until - proto_compiler.REST for name, until in compiler._costly.items()}
    assert compiler.compiled(good, 60).text


def test_without_a_compiler_records_wait_until_the_operator_has_one(
    compiler: ProtoCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are right, so none is refused."""
    monkeypatch.setattr(proto_compiler, "find_spec", lambda _: None)

    with pytest.raises(NoCompiler, match=r"pip install 'inference-worker\[registry\]', which has grpcio-tools"):
        compiler.compiled(of_text("message A {}"), 60)


def test_files_are_written_where_there_is_room(
    compiler: ProtoCompiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Containers have no other place than memory, and other systems no such place."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert compiler.compiled(of_text(ITEMS), 60).text

    monkeypatch.setattr(proto_compiler, "MEMORY", str(tmp_path / "nowhere"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert compiler.compiled(of_text(ITEMS), 60).text


def test_a_compiler_that_cannot_be_started_is_asked_again(
    compiler: ProtoCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine may have no room for a process."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    with pytest.raises(RegistryAway, match="protoc does not start"):
        compiler.compiled(of_text("message A {}"), 60)


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither files nor processes are left, also of a run whose result was not asked for."""
    monkeypatch.setattr(proto_compiler, "MEMORY", str(tmp_path))
    compiler = ProtoCompiler()
    compiler.compiled(of_text("message A {}"), 60)
    with pytest.raises(StillCompiling):
        compiler.compiled(of_text("message B {}")._replace(id=8), 0)
    (run,) = compiler._runs.values()

    compiler.close()

    assert run._process.returncode is not None
    assert list(tmp_path.iterdir()) == []

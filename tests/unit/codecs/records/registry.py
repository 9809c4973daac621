"""A registry in memory, that of the official client, and its serializers: other people's writers of records."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc
from grpc_tools.command import __file__ as TOOLS  # noqa: N812  # where protoc has its own imports

from worker.codecs.records.framing import SCHEMA_HEADER, Frame, frame_of
from worker.core.schemas import NamedReference, RegisteredSchema

Headers = list[tuple[str, Any]]
TOPIC = "payments"
PAYMENT: Mapping[str, Any] = {
    "payment_id": "p-4711",
    "amount": 12.5,
    "age_days": 400,
    "is_new": True,
    "channel": "POS",
    "country": "DE",
    "customer": {"name": "Secretary", "visits": 7},
    "items": [{"sku": "first", "price": 1.5}, {"sku": "second", "price": 0.25}],
    "tags": ["red", "blue"],
}
AVRO = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [
        {"name": "payment_id", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "age_days", "type": "int"},
        {"name": "is_new", "type": "boolean"},
        {"name": "channel", "type": {"type": "enum", "name": "Channel", "symbols": ["WEB", "APP", "POS"]}},
        {"name": "country", "type": ["null", "string"], "default": None},
        {
            "name": "customer",
            "type": {
                "type": "record",
                "name": "Customer",
                "fields": [{"name": "name", "type": "string"}, {"name": "visits", "type": "long"}],
            },
        },
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": "float"}],
                },
            },
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
PROTO = """
syntax = "proto3";
package shop;
message Payment {
  string payment_id = 1;
  double amount = 2;
  int32 age_days = 3;
  bool is_new = 4;
  Channel channel = 5;
  optional string country = 6;
  Customer customer = 7;
  repeated Item items = 8;
  repeated string tags = 9;
}
enum Channel { WEB = 0; APP = 1; POS = 2; }
message Customer { string name = 1; int64 visits = 2; }
message Item { string sku = 1; float price = 2; }
"""
JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Payment",
    "type": "object",
    "properties": {
        "payment_id": {"type": "string"},
        "amount": {"type": "number"},
        "age_days": {"type": "integer"},
        "country": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "customer": {"$ref": "#/definitions/customer"},
    },
    "definitions": {"customer": {"type": "object", "properties": {"name": {"type": "string"}}}},
}


class Registry:
    """A registry, and what the official serializers wrote with it."""

    def __init__(self) -> None:
        self.client = SchemaRegistryClient.new_client({"url": "mock://"})

    def written(self, serializer: Any, record: Any) -> tuple[bytes, Headers]:
        headers: Headers = []
        value = serializer(record, SerializationContext(TOPIC, MessageField.VALUE, headers=headers))
        return value, headers

    @property
    def schema(self) -> RegisteredSchema:
        """The latest schema of the topic, as the worker gets it."""
        latest = self.client.get_latest_version(f"{TOPIC}-value")
        references = tuple(self._references(latest.schema))
        schema: Any = latest.schema
        return RegisteredSchema(latest.schema_id, latest.guid, schema.schema_type, schema.schema_str, references)

    def _references(self, schema: Any) -> list[NamedReference]:
        found: list[NamedReference] = []
        for reference in schema.references or []:
            other: Any = self.client.get_version(reference.subject, reference.version).schema
            found += [*self._references(other), NamedReference(reference.name, other.schema_str)]
        return found


def avro(registry: Registry, schema: Any = AVRO, **conf: Any) -> Any:
    return AvroSerializer(registry.client, json.dumps(schema), conf=conf)


def json_schema(registry: Registry, schema: Any = JSON_SCHEMA, **conf: Any) -> Any:
    return JSONSerializer(json.dumps(schema), registry.client, conf={"validate": False, **conf})


def protobuf(registry: Registry, message: Any, **conf: Any) -> Any:
    return ProtobufSerializer(message, registry.client, conf=conf)


IN_HEADER = {"schema.id.serializer": header_schema_id_serializer}


def framed_by(value: bytes, headers: Headers) -> Frame:
    return frame_of(value, dict(headers).get(SCHEMA_HEADER))


def compiled(**files: str) -> dict[str, Any]:
    """The messages of some `.proto` files by full name. A file's name is that of its argument."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            file = Path(folder, f"{name}.proto")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        made = Path(folder, "made")
        standard = Path(TOOLS).parent / "_proto"
        sources = [f"{name}.proto" for name in files]
        options = [f"-I{folder}", f"-I{standard}", f"--descriptor_set_out={made}", "--include_imports"]
        assert protoc.main(["protoc", *options, *sources]) == 0
        described = FileDescriptorSet.FromString(made.read_bytes())
    pool = DescriptorPool()
    for file in described.file:
        pool.Add(file)
    messages: dict[str, Any] = {}
    for file in described.file:
        for message in pool.FindFileByName(file.name).message_types_by_name.values():
            messages[message.full_name] = GetMessageClass(message)
            messages |= {nested.full_name: GetMessageClass(nested) for nested in message.nested_types}
    return messages


def schema_of(message: Any, *imports: Any) -> RegisteredSchema:
    """The schema whose file has this message, as a registry gives it."""
    files = [(each.DESCRIPTOR.file.name, _text(each)) for each in imports]
    return RegisteredSchema(7, None, "PROTOBUF", _text(message), tuple([NamedReference(*file) for file in files]))


def _text(message: Any) -> str:
    return base64.b64encode(message.DESCRIPTOR.file.serialized_pb).decode()

"""Protobuf from Kafka to Kafka with a real registry: people's schemas as they register them, changed in mid-stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.kafka.apicurio import Apicurio
from tests.kafka.checker import Answer
from tests.kafka.cluster import Cluster, Sent, fresh
from tests.kafka.record_scene import LABELS, TOLERANCE, WEIGHTS, RecordScene, settings_of
from tests.kafka.scene import quick_exactly_once
from tests.unit.codecs.records.registry import compiled

MAPPING: Mapping[str, Any] = {
    "encoding": "registry",
    "inputs": {
        "features": ["amount", {"field": "at", "as": "hour"}, {"field": "count", "default": -1}],
        "country": "customer.country",
    },
    "answer": {
        "keep": ["id", "kind", "at", "card"],
        "score": "probabilities[1]",
        "label": {"argmax": "probabilities", "names": list(LABELS)},
        "country": "country_out",
    },
}
CUSTOMER = 'syntax = "proto3"; package shop; message Customer { string country = 1; }'
FIELDS = {
    "id": "string id = 1;",
    "amount": "double amount = 2;",
    "kind": "enum Kind { WEB = 0; POS = 1; } Kind kind = 3;",
    "count": "optional int32 count = 4;",
    "at": "google.protobuf.Timestamp at = 5;",
    "way": "oneof way { string card = 6; bool cash = 7; }",
    "customer": "Customer customer = 8;",
    "more": "map<string, Customer> others = 9; repeated Payment parts = 10;",
}
ANSWER = """
    syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
    message PaymentAnswer {
      optional string error = 1; optional float score = 2; optional string label = 3; optional string country = 4;
      optional string id = 1001; optional string kind = 1002; google.protobuf.Timestamp at = 1003;
      optional string card = 1004;
    }
"""
NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


def payment_file(message: str = "message Payment {{ {} }}", **changes: str) -> str:
    """A `.proto` file with a payment of these fields."""
    head = 'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; import "shop/customer.proto";'
    return f"{head} {message.format(' '.join({**FIELDS, **changes}.values()))}"


def kinds(file: str) -> dict[str, Any]:
    return compiled(**{"payment": file, "shop/customer": CUSTOMER})


def payment(number: int, **changes: Any) -> dict[str, Any]:
    """The n-th payment, as its message's fields."""
    return {
        "id": f"p-{number}",
        "amount": number % 7 / 4,
        "kind": number % 2,
        "at": NOON + timedelta(hours=number % 5, microseconds=number),
        "customer": {"country": ("NL", "DE", "ÖS")[number % 3]},
        "others": {"first": {"country": "NL"}},
        "parts": [{"id": "a part", "parts": [{}]}],
        **({"card": f"c-{number}"} if number % 2 else {"cash": True}),
        **({} if number % 3 else {"count": number % 11}),
        **changes,
    }


class Case(NamedTuple):
    """A record, and what its answer has: the fields, or words of the error."""

    value: bytes
    expected: Mapping[str, Any] | str


def right(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer to a payment, as numpy computes it."""
    row = np.array([fields["amount"], fields["at"].hour, fields.get("count", -1)], np.float32)
    logits = row @ WEIGHTS
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    return {
        "id": fields["id"],
        "kind": ("WEB", "POS")[fields["kind"]],
        "at": fields["at"],
        **({"card": fields["card"]} if "card" in fields else {}),
        "score": float(shares[1]),
        "label": LABELS[int(shares.argmax())],
        "country": fields["customer"]["country"],
    }


class Publisher:
    """Writes payments to a topic, with the schemas of other people's tools."""

    def __init__(self, theirs: SchemaRegistryClient, topic: str) -> None:
        self._theirs = theirs
        self._subject = f"{topic}-value"
        self._context = SerializationContext(topic, MessageField.VALUE)
        self._customers = fresh("customers")
        theirs.register_schema(self._customers, Schema(CUSTOMER, "PROTOBUF"))

    def of_python(self, file: str, records: Sequence[Mapping[str, Any]], name: str = "shop.Payment") -> list[bytes]:
        """As the official serializer writes them, which registers a descriptor and its imports."""
        kind = kinds(file)[name]
        serializer = ProtobufSerializer(kind, self._theirs)
        values = [serializer(kind(**fields), self._context) for fields in records]
        return [value for value in values if value is not None]

    def of_text(
        self, file: str, records: Sequence[Mapping[str, Any]], name: str = "shop.Payment", place: bytes = b"\0"
    ) -> list[bytes]:
        """As Java's serializer writes them, which registers the text of the file."""
        kind = kinds(file)[name]
        reference = SchemaReference(name="shop/customer.proto", subject=self._customers, version=1)
        number = self._theirs.register_schema(self._subject, Schema(file, "PROTOBUF", [reference]))
        return [b"\0" + number.to_bytes(4, "big") + place + kind(**fields).SerializeToString() for fields in records]


def of_payments(kafka: Cluster, folder: Path, registry: Apicurio, guarantee: str = "at_least_once") -> RecordScene:
    settings = {**settings_of(**MAPPING), "REGISTRY__URL": registry.url}
    return RecordScene(kafka, folder, settings, guarantee=guarantee)


def expect(scene: RecordScene, cases: Sequence[Case], theirs: SchemaRegistryClient) -> None:
    """Send the cases, and fail the test unless the official deserializer reads the right answer to each."""
    read = ProtobufDeserializer(compiled(answer=ANSWER)["shop.PaymentAnswer"], {"use.deprecated.format": False}, theirs)
    context = SerializationContext(scene.response_topic, MessageField.VALUE)
    places = scene.publish_in_order([Sent(b"k", case.value, [], at % 4) for at, case in enumerate(cases)])

    scene.expect_kept()
    answers = scene.by_source()
    for case, place in zip(cases, places, strict=True):
        found: Answer = answers[place]
        message = read(found.value, context)
        given = {field.name: value for field, value in message.ListFields()}
        if isinstance(case.expected, str):
            assert found.headers["error-code"] == "INVALID_ARGUMENT"
            assert list(given) == ["error"]
            assert case.expected in given["error"]
            continue
        score, wanted = given.pop("score", None), dict(case.expected)
        np.testing.assert_allclose(score, wanted.pop("score"), TOLERANCE, TOLERANCE, err_msg=str(found))
        given["at"] = given["at"].ToDatetime(UTC)
        assert given == wanted, found


@quick_exactly_once
def test_a_topic_of_protobuf_goes_on_while_its_schema_changes(
    kafka: Cluster, registry: Apicurio, theirs: SchemaRegistryClient, tmp_path: Path, guarantee: str
) -> None:
    """Fields added, gone, wider, of another name; descriptors and texts; any message of a file; each has its answer."""
    with of_payments(kafka, tmp_path, registry, guarantee) as scene:
        publisher = Publisher(theirs, scene.topic)
        some = [payment(number) for number in range(20)]
        rights = [right(fields) for fields in some]
        helpers = publisher.of_text(payment_file("message First {{}} message Payment {{ {} }}"), some, place=b"\2\2")
        first = publisher.of_python(payment_file(), some)
        scene.replica()
        more = publisher.of_python(payment_file(note="string note = 20;"), [payment(1, note="new")])
        without = {**some[1], "count": 7}
        wide = payment_file(count="optional int64 count = 4;")
        renamed = payment_file(amount="double total = 2;")
        nested = payment_file("message First {{}} message Outer {{ message Payment {{ {} }} }}")
        total = {name: value for name, value in some[1].items() if name != "amount"} | {"total": 1.0}
        text = publisher.of_text(payment_file(), some)
        place = b"\4\2\0"

        expect(
            scene,
            [
                *map(Case, first, rights),
                *map(Case, text, rights),
                *map(Case, helpers, rights),
                *map(Case, more, [right(some[1])]),
                *map(Case, publisher.of_python(wide, [payment(1, count=2**40)]), [right(payment(1, count=2**40))]),
                *map(Case, publisher.of_text(wide, [without]), [right(without)]),
                *map(Case, publisher.of_python(payment_file(count=""), some[1:3]), rights[1:3]),
                *map(Case, publisher.of_text(renamed, [total]), ["amount: missing"]),
                *map(Case, publisher.of_text(nested, some, "shop.Outer.Payment", place), rights),
                *map(Case, publisher.of_python(nested, some, "shop.Outer.Payment"), rights),
                *map(Case, first, rights),
            ],
            theirs,
        )


def test_answers_to_records_whose_schema_is_a_text_have_one(
    kafka: Cluster, registry: Apicurio, theirs: SchemaRegistryClient, tmp_path: Path
) -> None:
    """Apicurio gives it as it came, and the deserializers of Go read nothing else."""
    with of_payments(kafka, tmp_path, registry) as scene:
        places = scene.publish_in_order(
            [Sent(b"k", value) for value in Publisher(theirs, scene.topic).of_text(payment_file(), [payment(1)])]
        )
        scene.replica()

        answer = scene.by_source()[places[0]].value or b""

        text = theirs.get_latest_version(f"{scene.response_topic}-value").schema.schema_str
        kind = compiled(answer=text or "")["shop.PaymentAnswer"]
        assert (answer[5:6], kind.FromString(answer[6:]).id) == (b"\0", "p-1")


def test_wrong_protobuf_is_that_records_error(
    kafka: Cluster, registry: Apicurio, theirs: SchemaRegistryClient, tmp_path: Path
) -> None:
    """Schemas that are unknown or cannot be compiled, damaged values, messages in themselves without an end."""
    with of_payments(kafka, tmp_path, registry) as scene:
        publisher = Publisher(theirs, scene.topic)
        (good,) = publisher.of_python(payment_file(), [payment(1)])
        scene.replica()
        deep = b""
        for _ in range(200):
            deep = b"\x52" + _varint(len(deep)) + deep
        broken = theirs.register_schema(
            fresh("broken"), Schema('syntax = "proto3"; message A { B b = 1; }', "PROTOBUF")
        )

        expect(
            scene,
            [
                Case(good, right(payment(1))),
                Case(b"\0\0\x0f\x42\x40\0" + good[6:], "schema id 1000000 is not in the registry"),
                Case(
                    b"\0" + broken.to_bytes(4, "big") + b"\0", 'cannot be compiled: default:1:32: "B" is not defined.'
                ),
                Case(good[:-9], "expected a Protobuf message"),
                Case(good[:5], "expected the place of a message in its schema"),
                Case(good[:5] + b"\2\x08" + good[6:], "the value names a message that schema"),
                Case(good[:6] + deep, "expected a Protobuf message"),
                Case(good[:6] + b"\x10\1", "amount: it came as another type than its schema says"),
                Case(good[:6] + b"\x0b" * 50, "expected a Protobuf message"),
                Case(b"\5" + good[1:], "expected the frame of a schema registry"),
                Case(good, right(payment(1))),
            ],
            theirs,
        )


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)

"""Avro records on a real Kafka with a real registry: their schema changes in mid-stream, and each is answered rightly.

The publisher and the reader are the official serializers, which know nothing of the worker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka.schema_registry import SchemaRegistryClient, record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.kafka.apicurio import Apicurio
from tests.kafka.cluster import Cluster, Sent, fresh
from tests.kafka.record_scene import LABELS, WEIGHTS, RecordScene, settings_of

Fields = Mapping[str, Any]
_CUSTOMER: dict[str, Any] = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "country", "type": ["null", "string"]}, {"name": "age", "type": "int"}],
}
_FIELDS: dict[str, Any] = {
    "id": "long",
    "amount": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    "created": {"type": "long", "logicalType": "timestamp-millis"},
    "channel": {"type": "enum", "name": "Channel", "symbols": ["WEB", "APP"]},
    "note": ["null", "string"],
    "customer": _CUSTOMER,
}
_AGED = {**_CUSTOMER, "fields": [_CUSTOMER["fields"][0], {"name": "age", "type": "long"}]}
MAPPING: Mapping[str, Any] = {
    "encoding": "registry",
    "inputs": {
        "features": [
            {"field": "amount", "as": "decimal"},
            "customer.age",
            {"field": "created", "as": "hour"},
        ],
        "country": {"field": "customer.country", "default": "none"},
    },
    "answer": {
        "keep": ["id", "amount", "created", "channel"],
        "score": "probabilities[1]",
        "label": {"argmax": "probabilities", "names": list(LABELS)},
    },
}


def schema_of(fields: Mapping[str, Any], aliases: Mapping[str, str] | None = None) -> str:
    """The schema of a payment with these fields, some of which had another name before."""
    known = aliases or {}
    own = [
        {"name": name, "type": kind} | ({"aliases": [known[name]]} if name in known else {})
        for name, kind in fields.items()
    ]
    return json.dumps({"type": "record", "name": "Payment", "namespace": "shop", "fields": own})


# The schemas that follow one another in the topic, and what a payment is called by each.
VERSIONS: list[tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = [
    (schema_of(_FIELDS), lambda payment: payment),
    (schema_of({"source": "string", **_FIELDS}), lambda payment: {"source": "shop", **payment}),
    (schema_of({name: kind for name, kind in _FIELDS.items() if name != "note"}), lambda payment: payment),
    (schema_of({**_FIELDS, "customer": _AGED}), lambda payment: payment),
    (
        schema_of(
            {("total" if name == "amount" else name): kind for name, kind in _FIELDS.items()}, {"total": "amount"}
        ),
        lambda payment: {**payment, "total": payment["amount"]},
    ),
]


def payment(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "amount": Decimal(number % 700) / 100,
        "created": datetime(2026, 1, 31, tzinfo=UTC) + timedelta(minutes=97 * number),
        "channel": ("WEB", "APP")[number % 2],
        "note": None if number % 3 else "größer",
        "customer": {"country": ("NL", None, "ÖS")[number % 3], "age": number % 11},
    }


def right_answer(number: int) -> dict[str, Any]:
    """The answer to a payment, as numpy computes it."""
    asked = payment(number)
    features = np.array([float(asked["amount"]), asked["customer"]["age"], asked["created"].hour], np.float32)
    logits = features @ WEIGHTS
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    kept = {name: asked[name] for name in ("id", "amount", "created", "channel")}
    return {**kept, "score": float(shares[1]), "label": LABELS[int(shares.argmax())]}


class Publisher:
    """Writes payments by the schemas of `VERSIONS`, with the official serializer."""

    def __init__(self, theirs: SchemaRegistryClient, topic: str) -> None:
        self._context = SerializationContext(topic, MessageField.VALUE)
        self._serializers = [AvroSerializer(theirs, schema) for schema, _ in VERSIONS]

    def sent(self, number: int, version: int) -> Sent:
        """The payment of this number, by this version of the schema."""
        value = self._serializers[version](VERSIONS[version][1](payment(number)), self._context)
        assert value is not None
        return Sent(b"k%d" % (number % 7), value, [])


def scene_of(kafka: Cluster, folder: Path, registry: Apicurio, **tables: Any) -> RecordScene:
    settings = settings_of(**{**MAPPING, **tables})
    return RecordScene(kafka, folder, {**settings, "REGISTRY__URL": registry.url})


def expect_fields(found: Fields, right: Fields) -> None:
    """Fail the test unless these are the right fields."""
    np.testing.assert_allclose(found["score"], right["score"], 1e-6, 1e-6)
    assert {**found, "score": 0} == {**right, "score": 0}


def test_records_of_every_version_of_their_schema_are_answered_in_avro(
    kafka: Cluster, registry: Apicurio, theirs: SchemaRegistryClient, tmp_path: Path
) -> None:
    """A field is added, one removed, one widened, and one renamed with an alias, all while the worker runs."""
    with scene_of(kafka, tmp_path, registry) as scene:
        publisher = Publisher(theirs, scene.topic)
        before = scene.publish_in_order([publisher.sent(number, 0) for number in range(200)])
        scene.replica()
        scene.answers()
        cut = Sent(b"k", (publisher.sent(7, 0).value or b"")[:-1], [])
        *after, at_cut = scene.publish_in_order([*[publisher.sent(n, 1 + n % 4) for n in range(200, 600)], cut])

        answers = scene.by_source()

        read = AvroDeserializer(theirs)
        context = SerializationContext(scene.response_topic, MessageField.VALUE)
        for number, at in enumerate([*before, *after]):
            expect_fields(read(answers[at].value, context), {**right_answer(number), "error": None})
        error = read(answers[at_cut].value, context)
        assert answers[at_cut].headers["error-code"] == "INVALID_ARGUMENT"
        assert "ends too early" in error.pop("error")
        assert set(error.values()) == {None}
        scene.expect_kept()


def test_a_topic_of_several_kinds_has_the_subject_that_is_named(
    kafka: Cluster, registry: Apicurio, theirs: SchemaRegistryClient, tmp_path: Path
) -> None:
    """Its producers name subjects by their records, so there is none of the topic. Other kinds are passed over."""
    kind = fresh("Payment").replace("-", "_")
    of_record = {"subject.name.strategy": record_subject_name_strategy}
    payments, refunds = [
        AvroSerializer(
            theirs, json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields}), conf=of_record
        )
        for name, fields in (
            (kind, json.loads(VERSIONS[0][0])["fields"]),
            (f"{kind}Refund", [{"name": "id", "type": "long"}]),
        )
    ]
    settings = {**settings_of(**MAPPING, only={"channel": ["WEB", "APP"]}), "REGISTRY__URL": registry.url}
    named = {"REGISTRY__SUBJECT": f"shop.{kind}"}
    with RecordScene(kafka, tmp_path, {**settings, **named}, is_owed=lambda sent: sent.key == b"payment") as scene:
        context = SerializationContext(scene.topic, MessageField.VALUE)
        sent = [
            each
            for number in range(20)
            for each in (
                Sent(b"payment", payments(payment(number), context)),
                Sent(b"refund", refunds({"id": number}, context)),
            )
        ]
        scene.replica()
        places = scene.publish_in_order(sent)[::2]

        answers = scene.by_source()

        read = AvroDeserializer(theirs)
        answered = SerializationContext(scene.response_topic, MessageField.VALUE)
        for number, at in enumerate(places):
            expect_fields(read(answers[at].value, answered), {**right_answer(number), "error": None})
        scene.expect_kept()
        assert f"{scene.topic}-value" not in theirs.get_subjects()


def test_answers_to_avro_may_be_json_and_made_by_a_function(
    kafka: Cluster, registry: Apicurio, theirs: SchemaRegistryClient, tmp_path: Path
) -> None:
    """Decimals and instants keep all digits, as texts; and nothing is registered for the answers."""
    functions = tmp_path / "functions.py"
    functions.write_text(
        "def answer(outputs, record):\n"
        "    return {'action': 'review' if record['amount'] > 0.5 else 'pass', 'channel': record['channel'].lower()}\n"
    )
    answer = {**MAPPING["answer"], "keep": ["id", "amount", "created"]}
    with scene_of(kafka, tmp_path, registry, answer_encoding="json", functions=str(functions), answer=answer) as scene:
        publisher = Publisher(theirs, scene.topic)
        places = scene.publish_in_order([publisher.sent(number, 0) for number in range(100)])
        scene.replica()

        answers = scene.by_source()

        for number, at in enumerate(places):
            right = right_answer(number)
            channel = right.pop("channel").lower()
            created = right["created"].isoformat().replace("+00:00", "Z")
            right |= {"amount": str(payment(number)["amount"].quantize(Decimal("0.01"))), "created": created}
            action = "review" if payment(number)["amount"] > 0.5 else "pass"
            expect_fields(json.loads(answers[at].value or b""), {**right, "action": action, "channel": channel})
        assert f"{scene.response_topic}-value" not in theirs.get_subjects()

"""A registry of ours has what Apicurio lacks: schemas by their GUIDs, TLS with certificates on both sides, logins."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.kafka.certificates import Authority, Certificate
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.own_registry import OwnRegistry
from tests.kafka.record_scene import MAPPING, TOLERANCE, RecordScene, latencies, payment, right_answer, settings_of
from tests.unit.codecs.records.registry import compiled
from worker.core.schemas import NamedReference, RegisteredSchema
from worker.registry.client import RegistryClient
from worker.registry.verdicts import RegistryAway, RegistryRefuses
from worker.settings import RegistrySettings

AVRO = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "amount", "type": "double"},
        {"name": "age", "type": "int"},
        {
            "name": "customer",
            "type": {
                "type": "record",
                "name": "Customer",
                "fields": [{"name": "country", "type": "string"}, {"name": "score", "type": "double"}],
            },
        },
    ],
}
PROTO = """
    syntax = "proto3";
    message Customer { string country = 1; double score = 2; }
    message Payment { int32 id = 1; double amount = 2; int32 age = 3; Customer customer = 4; }
"""
LOGIN = {"username": "me", "password": "s:ecret"}
BASIC = f"Basic {base64.b64encode(b'me:s:ecret').decode()}"


class Place(NamedTuple):
    """A registry that asks for a certificate, and what a client needs to be let in."""

    registry: OwnRegistry
    authority: Authority
    ours: Certificate

    def client(self, **given: Any) -> RegistryClient:
        files = {
            "ssl_ca_location": self.authority.path,
            "ssl_certificate_location": self.ours.certificate,
            "ssl_key_location": self.ours.key,
        }
        return RegistryClient(RegistrySettings.model_validate({"url": self.registry.url, **files, **given}))

    def theirs(self) -> SchemaRegistryClient:
        """The official client, as a publisher has it."""
        return SchemaRegistryClient(
            {
                "url": self.registry.url,
                "ssl.ca.location": str(self.authority.path),
                "ssl.certificate.location": str(self.ours.certificate),
                "ssl.key.location": str(self.ours.key),
                "basic.auth.user.info": "me:s:ecret",
            }
        )


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Place]:
    authority = Authority(tmp_path, "authority")
    with OwnRegistry(authority.issue("registry"), authority, BASIC) as registry:
        yield Place(registry, authority, authority.issue("worker"))


def test_our_registry_is_one_to_the_official_client(guarded: Place) -> None:
    """It finds what it has registered by number, by GUID, by version, and by the schema itself."""
    with guarded.theirs() as theirs:
        number = theirs.register_schema("types", Schema(json.dumps(AVRO), "AVRO"))
        other = theirs.register_schema(
            "payments", Schema("[]", "AVRO", [SchemaReference(name="t", subject="types", version=1)])
        )
        latest = theirs.get_latest_version("types")
        assert latest.guid is not None

        assert theirs.get_schema_by_guid(latest.guid).schema_str == json.dumps(AVRO)
        assert (latest.schema_id, latest.version, other) == (number, 1, 2)
        assert theirs.lookup_schema("types", Schema(json.dumps(AVRO), "AVRO")).schema_id == number

    ours = guarded.client(**LOGIN)
    assert ours.schema(UUID(latest.guid)) == RegisteredSchema(None, latest.guid, "AVRO", json.dumps(AVRO))
    assert ours.schema(2).references == (NamedReference("t", json.dumps(AVRO)),)
    ours.close()


@pytest.mark.parametrize(
    ("header", "login"),
    [(BASIC, LOGIN), ("Bearer t0k", {"token": "t0k"})],
    ids=["basic", "bearer"],
)
def test_a_login_is_taken_and_a_wrong_one_is_said(guarded: Place, header: str, login: dict[str, str]) -> None:
    """Over TLS, with a certificate of ours."""
    guarded.registry.login = header
    right, wrong, none = (
        guarded.client(**login),
        guarded.client(**login | {next(reversed(login)): "x"}),
        guarded.client(),
    )

    assert right.register("scores", RegisteredSchema(None, None, "AVRO", "[]")).id == 1
    for client in (wrong, none):
        with pytest.raises(RegistryRefuses, match="refuses our login, or what we ask: Unauthorized"):
            client.schema(1)
    for client in (right, wrong, none):
        client.close()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (lambda _: {"ssl_ca_location": None}, "certificate verify failed"),
        (lambda folder: {"ssl_ca_location": Authority(folder, "other").path}, "certificate verify failed"),
        (lambda _: {"ssl_certificate_location": None, "ssl_key_location": None}, "certificate required|reset|closed"),
    ],
    ids=["the usual authorities", "another authority", "no certificate of ours"],
)
def test_certificates_are_checked_on_both_sides(
    guarded: Place, given: Callable[[Path], dict[str, Any]], why: str, tmp_path: Path
) -> None:
    """The error says what is wrong with them, and is no verdict on a schema."""
    client = guarded.client(**LOGIN, **given(tmp_path))

    with pytest.raises(RegistryAway, match=f"(?i){why}"):
        client.schema(1)
    client.close()


def test_records_that_name_their_schema_by_guid_are_answered(kafka: Cluster, guarded: Place, tmp_path: Path) -> None:
    """In a header, as the official serializers write it, or in the value. Avro and Protobuf share the topic."""
    settings = {
        **settings_of(encoding="registry", **MAPPING),
        "REGISTRY__URL": guarded.registry.url,
        "REGISTRY__SSL_CA_LOCATION": str(guarded.authority.path),
        "REGISTRY__SSL_CERTIFICATE_LOCATION": str(guarded.ours.certificate),
        "REGISTRY__SSL_KEY_LOCATION": str(guarded.ours.key),
        "REGISTRY__USERNAME": "me",
        "REGISTRY__PASSWORD": "s:ecret",
    }
    with RecordScene(kafka, tmp_path, settings) as scene, guarded.theirs() as theirs:
        kind = compiled(payment=PROTO)["Payment"]
        in_header = {"schema.id.serializer": header_schema_id_serializer}
        protobuf = ProtobufSerializer(kind, theirs, {"auto.register.schemas": True, **in_header})
        avro = AvroSerializer(theirs, json.dumps(AVRO), conf=in_header)
        records = [payment(number) for number in range(40)]
        sent: list[Sent] = []
        for number, record in enumerate(records):
            fields = {name: record[name] for name in ("id", "amount", "age", "customer")}
            headers: Any = []
            context = SerializationContext(scene.topic, MessageField.VALUE, headers=headers)
            value = protobuf(kind(**fields), context) if number % 4 == 0 else avro(fields, context)
            ((name, guid),) = headers
            if number % 4 == 2:  # in the value
                value, headers = guid + (value or b""), []
            if number % 4 == 3:  # the number, in the header
                newest = theirs.lookup_schema(f"{scene.topic}-value", Schema(json.dumps(AVRO), "AVRO"))
                headers = [(name, b"\0" + (newest.schema_id or 0).to_bytes(4, "big"))]
            sent.append(Sent(b"k", value, headers, number % 3))
        unknown = [("__value_schema_id", b"\1" + UUID(int=7).bytes)]
        scene.replica()
        places = scene.publish_in_order([*sent, Sent(b"k", b"\0", unknown, 0)])

        scene.expect_kept()
        answers = scene.by_source()
        read = AvroDeserializer(theirs)
        context = SerializationContext(scene.response_topic, MessageField.VALUE)
        for record, place in zip(records, places, strict=False):
            found, right = read(answers[place].value, context), right_answer(record)
            assert found.pop("score") == pytest.approx(right.pop("score"), rel=TOLERANCE, abs=TOLERANCE)
            assert found == {**right, "error": None}
        error = read(answers[places[-1]].value, context)["error"]
        assert error == f"schema GUID {UUID(int=7)} is not in the registry"


@pytest.mark.slow
def test_a_text_that_takes_long_to_compile_holds_up_its_own_partition_alone(kafka: Cluster, tmp_path: Path) -> None:
    """Others are answered meanwhile, also with a text that is new; the record of that one is refused."""
    numbers = ",".join(str(2 * at + 1) for at in range(140_000))
    hostile = f'syntax = "proto3"; message Payment {{ reserved {numbers}; int32 id = 2; }}'
    kind = compiled(payment=PROTO)["Payment"]
    with OwnRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as theirs:
        settings = {**settings_of(encoding="registry", **MAPPING), "REGISTRY__URL": registry.url}
        with RecordScene(kafka, tmp_path, settings) as scene:

            def sent(text: str, partition: int, records: int) -> list[Sent]:
                number = theirs.register_schema(f"{scene.topic}-value", Schema(text, "PROTOBUF"))
                head = b"\0" + number.to_bytes(4, "big") + b"\2\2"
                fields = ("id", "amount", "age", "customer")
                rows = [{name: payment(at)[name] for name in fields} for at in range(records)]
                return [Sent(b"k", head + kind(**row).SerializeToString(), [], partition) for row in rows]

            known = sent(PROTO, 1, 100)
            replica = scene.replica()
            scene.publish(sent(hostile, 0, 1))
            replica.wait_until("inference_worker_partitions_waiting_for_schema", lambda waiting: waiting == 1)
            scene.publish([*known, *sent(f"{PROTO} // new", 2, 100)])

            scene.expect_kept()
            (error,) = [found for found in scene.auditor.answers if found.is_error]
            assert b"takes too long, or too much memory, to compile" in (error.value or b"")
            (waited,) = latencies(kafka, scene, 0)
            assert waited > 4
            assert max(latencies(kafka, scene, 1)) < waited / 3, waited
            assert max(latencies(kafka, scene, 2)) < waited / 2, waited

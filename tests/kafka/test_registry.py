"""The worker's side of a schema registry, on a real one that others wrote, and beside the official client."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from tests.kafka.apicurio import Apicurio
from tests.kafka.cluster import fresh
from tests.unit.codecs.records.registry import AVRO, JSON_SCHEMA, PROTO, compiled, schema_of
from worker.codecs.records.answer_fields import AnswerField
from worker.codecs.records.answer_schemas import answer_schema
from worker.core.failures import BadConfiguration
from worker.core.schemas import NamedReference, RegisteredSchema, SchemaName, UnknownSchema
from worker.registry.registry import Registry
from worker.settings import RegistrySettings

Opening = Callable[..., Registry]


@pytest.fixture
def opened(registry: Apicurio) -> Iterator[Opening]:
    """Opens the worker's side of the registry, and closes it at the end."""
    made: list[Registry] = []

    def opened(**given: Any) -> Registry:
        made.append(Registry(RegistrySettings.model_validate({"url": registry.url, "timeout_s": 2.0, **given})))
        return made[-1]

    yield opened
    for each in made:
        each.close(10)


def record_of(*fields: str, name: str = "Payment") -> str:
    """An Avro schema of numbers."""
    return json.dumps({"type": "record", "name": name, "fields": [{"name": each, "type": "double"} for each in fields]})


def come(registry: Registry, name: SchemaName) -> RegisteredSchema | UnknownSchema:
    """Ask until there is an answer."""
    waiting = threading.Event()
    for _ in range(6000):
        if (found := registry.schemas.get(name)) is not None:
            return found
        waiting.wait(0.01)
    raise AssertionError(f"no answer about {name}: {registry.schemas.trouble}")


def trouble_of(registry: Registry) -> str:
    """The registry's trouble, once there is one."""
    waiting = threading.Event()
    for _ in range(6000):
        if (trouble := registry.schemas.trouble) is not None:
            return trouble
        waiting.wait(0.01)
    raise AssertionError("no trouble")


def test_a_publishers_schema_is_found_by_its_id(opened: Opening, theirs: SchemaRegistryClient) -> None:
    """The text is what was registered."""
    number = theirs.register_schema(fresh("payments"), Schema(record_of("amount"), "AVRO"))

    assert come(opened(), number) == RegisteredSchema(number, None, "AVRO", record_of("amount"))


def test_references_come_with_their_schema(opened: Opening, theirs: SchemaRegistryClient) -> None:
    """Each comes before the schemas that refer to it."""
    subjects = [fresh("types") for _ in range(3)]
    theirs.register_schema(subjects[0], Schema(record_of("street", name="Street"), "AVRO"))
    address = '{"type": "record", "name": "Address", "fields": [{"name": "street", "type": "Street"}]}'
    street = SchemaReference(name="Street", subject=subjects[0], version=1)
    theirs.register_schema(subjects[1], Schema(address, "AVRO", [street]))
    person = '{"type": "record", "name": "Person", "fields": [{"name": "home", "type": "Address"}]}'
    references = [SchemaReference(name="Address", subject=subjects[1], version=1), street]
    number = theirs.register_schema(subjects[2], Schema(person, "AVRO", references))

    found = come(opened(), number)

    assert isinstance(found, RegisteredSchema)
    assert found.text == person
    assert found.references == (
        NamedReference("Street", record_of("street", name="Street")),
        NamedReference("Address", address),
    )


def test_an_id_or_a_guid_that_is_not_there_is_a_verdict(opened: Opening) -> None:
    """A registry that has no page for GUIDs says so, too."""
    worker = opened()
    guid = uuid4()

    assert come(worker, 2_000_000_000) == UnknownSchema("schema id 2000000000 is not in the registry")
    assert str(come(worker, guid)).startswith(f"UnknownSchema(why='schema GUID {guid} is not in the registry")


def test_a_registry_that_is_away_answers_later(opened: Opening, registry: Apicurio) -> None:
    """A question outlasts a restart and a hang, and meanwhile it is known why."""
    worker = opened()
    registry.stop()
    assert worker.schemas.get(1_000_000) is None
    refused = trouble_of(worker)
    registry.start()
    after_restart = come(worker, 1_000_000)

    registry.suspend()
    assert worker.schemas.get(1_000_001) is None
    silent = trouble_of(worker)
    registry.heal()
    after_hang = come(worker, 1_000_001)

    assert "refused" in refused
    assert "Timeout" in silent
    assert isinstance(after_restart, UnknownSchema)
    assert isinstance(after_hang, UnknownSchema)
    assert worker.schemas.away_since is None


def test_answers_are_registered_once_and_may_be_changed_only_compatibly(
    opened: Opening, theirs: SchemaRegistryClient
) -> None:
    """The registry holds a new schema of answers against the earlier ones, as it is set there."""
    subject = fresh("scores")
    opened().of_answers(subject, RegisteredSchema(None, None, "AVRO", record_of("other")), is_trial=True)
    first = opened().of_answers(subject, RegisteredSchema(None, None, "AVRO", record_of("score")))
    theirs.set_compatibility(subject, "FULL")

    again = opened().of_answers(subject, RegisteredSchema(None, None, "AVRO", record_of("score")))
    for is_trial in (True, False):
        with pytest.raises(BadConfiguration, match=f"WORKER_REGISTRY__REGISTER: {subject} does not take the schema"):
            opened().of_answers(subject, RegisteredSchema(None, None, "AVRO", record_of("other")), is_trial=is_trial)

    assert again == first
    assert theirs.get_versions(subject) == [1]


@pytest.mark.parametrize(
    ("record", "level"),
    [
        (RegisteredSchema(7, None, "AVRO", json.dumps(AVRO)), "FULL_TRANSITIVE"),
        (schema_of(compiled(payment=PROTO)["shop.Payment"])._replace(was_text=True), "FULL_TRANSITIVE"),
        (RegisteredSchema(7, None, "JSON", json.dumps(JSON_SCHEMA)), "BACKWARD_TRANSITIVE"),
    ],
    ids=["Avro", "Protobuf", "JSON"],
)
def test_answers_may_gain_fields(
    opened: Opening, theirs: SchemaRegistryClient, record: RegisteredSchema, level: str
) -> None:
    """The registry takes a field of the answer more, and a kept one more: of JSON Schema only as BACKWARD."""
    subject, score = fresh("scores"), AnswerField("score", "FP32")

    def put(fields: list[AnswerField], *kept: str) -> None:
        schema = answer_schema(record, fields, {name: (name,) for name in kept})
        opened().of_answers(subject, RegisteredSchema(None, None, schema.type, schema.text))

    put([score], "payment_id")
    theirs.set_compatibility(subject, level)

    put([score, AnswerField("embedding", "FP64", (3,))], "payment_id")
    put([score, AnswerField("embedding", "FP64", (3,))], "payment_id", "amount")

    assert theirs.get_versions(subject) == [1, 2, 3]


def test_answers_are_looked_up_where_registering_is_others_work(opened: Opening, theirs: SchemaRegistryClient) -> None:
    """Ours is found whichever version it is; where it is not there the start says what to register."""
    subject, ours = fresh("scores"), RegisteredSchema(None, None, "AVRO", record_of("score"))
    theirs.register_schema(subject, Schema(record_of("theirs"), "AVRO"))
    with pytest.raises(BadConfiguration, match=f"{subject} has no schema for these answers: .*register this one"):
        opened(register=False).of_answers(subject, ours)

    number = theirs.register_schema(subject, Schema(record_of("score"), "AVRO"))
    theirs.register_schema(subject, Schema(record_of("score", "more"), "AVRO"))

    assert opened(register=False).of_answers(subject, ours) == ours._replace(id=number)


def test_a_worker_starts_and_reads_without_the_registry_that_it_has_met(
    opened: Opening, theirs: SchemaRegistryClient, registry: Apicurio, tmp_path: Path
) -> None:
    """All that it needs is in its folder; without a folder the start says what to do."""
    payments, scores = fresh("payments"), fresh("scores")
    old = theirs.register_schema(payments, Schema(record_of("amount"), "AVRO"))
    new = theirs.register_schema(payments, Schema(record_of("amount", "age"), "AVRO"))
    ours = RegisteredSchema(None, None, "AVRO", record_of("score"))
    before = opened(cache_directory=tmp_path)
    met = before.newest(payments), before.of_answers(scores, ours), come(before, old)
    registry.stop()

    later = opened(cache_directory=tmp_path)

    assert (later.newest(payments), later.of_answers(scores, ours), later.schemas.get(old)) == met
    assert isinstance(found := later.schemas.get(new), RegisteredSchema)
    assert found.text == record_of("amount", "age")
    with pytest.raises(BadConfiguration, match=f"WORKER_REGISTRY__URL: {registry.url} does not answer: .*start it"):
        opened().newest(payments)

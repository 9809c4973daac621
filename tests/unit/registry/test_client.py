"""The registry's answers, as verdicts: a schema, none there, not taken, or no answer of a registry at all."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry.common._httpx_compat import httpx

from tests.unit.registry.scripted import ABSENT, PAYMENT, Answer, ScriptedRegistry, away, schema_page
from worker.core.failures import BadConfiguration
from worker.core.schemas import NamedReference, RegisteredSchema
from worker.registry import client as rooms_client
from worker.registry.verdicts import NotInRegistry, NotTaken, RegistryAway, RegistryRefuses

GUID = UUID("7f0a7b3e-2f7e-4f6c-9d3f-0123456789ab")
TYPES = {"/schemas/types": (200, ["AVRO", "JSON", "PROTOBUF"])}
BASIC, BEARER = {"username": "me", "password": "s:ecret"}, {"token": "t0k"}
OURS = RegisteredSchema(None, None, "AVRO", PAYMENT)


def test_a_schema_is_fetched_by_its_id_or_its_guid() -> None:
    """Without a type it is Avro. Protobuf is wanted as a descriptor."""
    registry = ScriptedRegistry({
        "/schemas/ids/7": schema_page(),
        f"/schemas/guids/{GUID}": schema_page("CgA=", schemaType="PROTOBUF"),
    })  # fmt: skip
    client = registry.client()

    assert client.schema(7) == RegisteredSchema(7, None, "AVRO", PAYMENT)
    assert client.schema(GUID) == RegisteredSchema(None, str(GUID), "PROTOBUF", "CgA=")
    assert [request.url.params["format"] for request in registry.asked] == ["serialized", "serialized"]


def test_the_client_keeps_nothing_that_it_fetched() -> None:
    """A publisher may register any number of schemas, and its memory for them has no bound."""
    registry = ScriptedRegistry({"/schemas/ids/7": schema_page()})
    client = registry.client()

    assert client.schema(7) == client.schema(7)
    assert registry.paths == ["/schemas/ids/7"] * 2


def test_references_are_fetched_each_before_the_schemas_that_refer_to_it() -> None:
    """A schema that two others refer to comes once, before both."""

    def refers(*names: str) -> list[dict[str, Any]]:
        return [{"name": name, "subject": f"s/{name}", "version": 3} for name in names]

    client = ScriptedRegistry({
        "/schemas/ids/7": schema_page("top", references=refers("a", "b")),
        "/subjects/s/a/versions/3": schema_page("A", references=refers("c")),
        "/subjects/s/b/versions/3": schema_page("B", references=refers("c", "a")),
        "/subjects/s/c/versions/3": schema_page("C"),
    }).client()  # fmt: skip

    found = client.schema(7)

    assert found.references == (NamedReference("c", "C"), NamedReference("a", "A"), NamedReference("b", "B"))


def test_a_schema_whose_reference_is_not_there_is_not_there() -> None:
    """Nothing could be read with it, and the verdict names the reference."""
    client = ScriptedRegistry({
        "/schemas/ids/7": schema_page("top", references=[{"name": "a", "subject": "a", "version": 1}]),
        "/subjects/a/versions/1": (404, {"error_code": 40401, "message": "Subject 'a' not found"}),
    }).client()  # fmt: skip

    with pytest.raises(NotInRegistry, match="refers to a, which is not in the registry"):
        client.schema(7)


def test_what_a_json_schema_refers_to_is_not_asked_for() -> None:
    """Records in JSON are read without their schema, so nothing is wrong with them where a reference is gone."""
    page = schema_page("{}", schemaType="JSON", references=[{"name": "a", "subject": "a", "version": 1}])
    registry = ScriptedRegistry({"/schemas/ids/7": page})

    assert registry.client().schema(7) == RegisteredSchema(7, None, "JSON", "{}")
    assert registry.paths == ["/schemas/ids/7"]


def test_a_schema_that_refers_to_too_many_is_not_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reference costs a question, and publishers choose the schemas."""
    monkeypatch.setattr(rooms_client, "MOST_REFERENCES", 2)
    pages: dict[str, Answer | Exception] = {
        f"/subjects/{at}/versions/1": schema_page(references=[{"name": at + 1, "subject": f"{at + 1}", "version": 1}])
        for at in range(9)
    }
    pages["/schemas/ids/7"] = schema_page(references=[{"name": "0", "subject": "0", "version": 1}])

    with pytest.raises(NotInRegistry, match="refers to more than 2 schemas"):
        ScriptedRegistry(pages).client().schema(7)


def test_a_schema_of_an_unknown_type_is_none() -> None:
    """Nothing here reads it."""
    client = ScriptedRegistry({"/schemas/ids/7": schema_page(schemaType="THRIFT")}).client()

    with pytest.raises(NotInRegistry, match="is of type THRIFT, which is none of AVRO, PROTOBUF, JSON"):
        client.schema(7)


def test_only_a_registrys_own_answer_says_that_a_schema_is_not_there() -> None:
    """A proxy whose registry is away has no page for any question: that is no verdict, and the record waits."""
    assert_raises(NotInRegistry, "is not in the registry", {"/schemas/ids/7": ABSENT})
    assert_raises(RegistryAway, "answers as no registry", {"/schemas/ids/7": (404, "<h1>404</h1>")})
    assert_raises(RegistryAway, "answers as no registry", {"/schemas/ids/7": (404, {"error_code": 404})})


def test_an_old_registry_that_has_no_page_for_guids_has_no_schema_by_guid() -> None:
    """It answers other questions as a registry does, so the record is at fault, and its partition does not wait."""
    client = ScriptedRegistry({**TYPES, f"/schemas/guids/{GUID}": (404, {"error_code": 404})}).client()

    with pytest.raises(NotInRegistry, match="has no page for it"):
        client.schema(GUID)


def test_a_question_that_the_registry_refuses_is_the_records_error() -> None:
    """It would be refused for ever."""
    page = (422, {"error_code": 42201, "message": "Invalid id"})

    assert_raises(NotInRegistry, "is refused by the registry: Invalid id", {"/schemas/ids/7": page})


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (away(), "ConnectError: Connection refused"),
        (httpx.ReadTimeout("timed out"), "ReadTimeout: timed out"),
        ((500, {"error_code": 50001, "message": "Error in the backend"}), "Error in the backend (HTTP status 500)"),
        ((503, "x" * 1000), "x" * 200),
        ((429, {"error_code": 42900, "message": "Slow down"}), "Slow down (HTTP status 429)"),
        ((200, "<h1>Sign in</h1>"), "JSONDecodeError"),
        ((200, [1]), "Error: "),
    ],
    ids=["refused", "silent", "broken", "a proxy's page", "busy", "a portal", "nonsense"],
)
def test_all_that_is_no_verdict_is_asked_again(page: Answer | Exception, why: str) -> None:
    """The reason is said, and is never long."""
    with pytest.raises(RegistryAway) as found:
        ScriptedRegistry({"/schemas/ids/7": page}).client().schema(7)

    assert why in str(found.value)
    assert len(str(found.value)) < 400
    assert not isinstance(found.value, RegistryRefuses)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_is_no_verdict_on_a_schema(status: int) -> None:
    """It says something of us, so no record is rejected for it."""
    page = (status, {"error_code": status, "message": "Unauthorized"})

    with pytest.raises(RegistryRefuses, match="refuses our login"):
        ScriptedRegistry({"/schemas/ids/7": page}).client().schema(7)


def test_each_login_is_sent_as_it_is_set() -> None:
    """Basic and bearer."""
    registry = ScriptedRegistry({"/schemas/ids/7": schema_page()})

    registry.client().schema(7)
    registry.client(**BASIC).schema(7)
    registry.client(**BEARER).schema(7)

    basic = f"Basic {b64encode(b'me:s:ecret').decode()}"
    assert [request.headers.get("authorization") for request in registry.asked] == [None, basic, "Bearer t0k"]


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """The worker finds that before it joins the group."""
    wrong = tmp_path / "ca.pem"
    wrong.write_text("no certificate")

    for files in ({"ssl_ca_location": wrong}, {"ssl_certificate_location": wrong, "ssl_key_location": wrong}):
        with pytest.raises(
            BadConfiguration, match="WORKER_REGISTRY__SSL_CA_LOCATION, SSL_CERTIFICATE_LOCATION: a file"
        ):
            ScriptedRegistry().client(**files)


def test_a_schema_is_registered_or_found_with_its_id() -> None:
    """What the registry does not say, we know."""
    registry = ScriptedRegistry({
        "/subjects/scores-value/versions": (200, {"id": 9, "guid": str(GUID)}),
        "/subjects/scores-value": (200, {"id": 8, "subject": "scores-value", "version": 1, "schema": PAYMENT}),
        "/subjects/scores-value/versions/latest": (200, {"id": 6, "version": 2, "schema": "other"}),
    })  # fmt: skip
    client = registry.client()

    assert client.register("scores-value", OURS) == OURS._replace(id=9, guid=str(GUID))
    assert client.looked_up("scores-value", OURS) == OURS._replace(id=8)
    assert client.latest("scores-value") == RegisteredSchema(6, None, "AVRO", "other")


def test_a_schema_that_may_not_follow_the_earlier_ones_is_not_taken() -> None:
    """The registry says why."""
    page = (409, {"error_code": 409, "message": "Schema being registered is incompatible"})
    client = ScriptedRegistry({"/subjects/scores-value/versions": page}).client()

    with pytest.raises(NotTaken, match="is incompatible"):
        client.register("scores-value", OURS)


def assert_raises(kind: type[Exception], why: str, pages: dict[str, Answer | Exception]) -> None:
    with pytest.raises(kind, match=why):
        ScriptedRegistry(pages).client().schema(7)

"""The schema registry, asked by its official client. Each call waits for one answer, or for a few with references.

The client's own repetitions are switched off, because who asks decides when to ask again. An answer that is no
registry's, as of a proxy whose registry is away, is no verdict on a schema.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from worker.core.failures import BadConfiguration
from worker.core.schemas import NamedReference, RegisteredSchema, SchemaName, SchemaType
from worker.registry.proto_compiler import MOST_SECONDS, ProtoCompiler
from worker.registry.verdicts import MOST_SAID, NotInRegistry, NotReadable, NotTaken, RegistryAway, RegistryRefuses
from worker.settings import RegistrySettings

try:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
    from confluent_kafka.schema_registry.common._httpx_compat import httpx  # the one that this client uses
except ImportError as missing:
    raise BadConfiguration(
        f"WORKER_REGISTRY__URL: the registry's client is not installed ({missing}): install this package with its "
        "extra, pip install '.[registry]'"
    ) from missing

logging.getLogger(httpx.__name__).setLevel(logging.WARNING)  # it logs each request otherwise
# The most schemas that one schema may refer to, in all: each costs a question.
MOST_REFERENCES = 200
TYPES: tuple[SchemaType, ...] = ("AVRO", "PROTOBUF", "JSON")
# The form that a Protobuf schema is wanted in: its descriptor, as base64. Others have no such form, and some registries
# do not know it: Apicurio gives what was registered, which mostly is a text.
FORMAT = "serialized"
_NOT_FOUND, _CONFLICT, _UNPROCESSABLE = 404, 409, 422
_LOGIN_REFUSED = (401, 403, 407)
# Failures of the client's connections, and of its reading of an answer that is no registry's.
_NO_ANSWER = (httpx.HTTPError, httpx.InvalidURL, OSError, LookupError, ValueError, TypeError, AttributeError)


class RegistryClient:
    """Asks the registry. Any thread may, one at a time."""

    def __init__(self, registry: RegistrySettings) -> None:
        """Raises `BadConfiguration` for a certificate that cannot be used."""
        self.url = registry.url
        self._compiler = ProtoCompiler()
        try:
            self._client = SchemaRegistryClient(_config(registry))
        except (OSError, ValueError, TypeError) as error:
            raise BadConfiguration(
                f"WORKER_REGISTRY__SSL_CA_LOCATION, SSL_CERTIFICATE_LOCATION: a file cannot be used: {error}"
            ) from error

    def schema(self, name: SchemaName, patience: float = MOST_SECONDS) -> RegisteredSchema:
        """Fetch a schema with its references. Raises `NotInRegistry` and `RegistryAway`.

        One that takes more than `patience` seconds to compile is `StillCompiling`.
        """
        if isinstance(name, int):
            schema = self._named(lambda: self._client.get_schema(name, fmt=FORMAT))
            complete = self._complete(schema, name, None, patience)
        else:
            schema = self._named(lambda: self._client.get_schema_by_guid(str(name), FORMAT))
            complete = self._complete(schema, None, str(name), patience)
        # They have no bound, and `schemas.py` remembers what it has asked for.
        self._client.clear_caches()  # type: ignore[no-untyped-call]  # it has no types
        return complete

    def latest(self, subject: str) -> RegisteredSchema:
        """Fetch the newest schema of a subject. Raises `NotInRegistry` and `RegistryAway`."""
        with _translated():
            found = self._client.get_latest_version(subject, FORMAT)
        return self._complete(found.schema, found.schema_id, found.guid, MOST_SECONDS)

    def register(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """Register the schema, unless it is there. Raises `NotTaken` if it may not follow the subject's others."""
        with _translated():
            found = self._client.register_schema_full_response(subject, _plain(schema))
        return schema._replace(id=found.schema_id, guid=found.guid)

    def tried(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """Ask whether the subject would take the schema, which gets the id 0. Raises as `register` does."""
        try:
            with _translated():
                fits = self._client.test_compatibility(subject, _plain(schema))
        except NotInRegistry:  # the subject has no schema yet
            fits = True
        if not fits:
            raise NotTaken("it does not fit the newest one there")
        return schema._replace(id=0)

    def looked_up(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """Find the schema among those of the subject. Raises `NotInRegistry` and `RegistryAway`."""
        with _translated():
            found = self._client.lookup_schema(subject, _plain(schema))
        return schema._replace(id=found.schema_id, guid=found.guid)

    def close(self) -> None:
        self._compiler.close()
        self._client.close()

    def _named(self, ask: Callable[[], Schema]) -> Schema:
        """Ask for a schema by its name. One that an old registry has no page for is not there, either."""
        try:
            with _translated():
                return ask()
        except _NoSuchPage as absent:
            with _translated():
                self._client.get_schema_types()  # a proxy without its registry has no such page, either
            raise NotInRegistry("is not in the registry, which has no page for it") from absent
        except NotTaken as refused:
            raise NotInRegistry(f"is refused by the registry: {refused}") from refused

    def _complete(self, schema: Schema, number: int | None, guid: str | None, patience: float) -> RegisteredSchema:
        kind = next((each for each in TYPES if each == (schema.schema_type or "AVRO")), None)
        if kind is None:
            raise NotReadable(f"is of type {schema.schema_type}, which is none of {', '.join(TYPES)}")
        # JSON is read without its schema.
        references = () if kind == "JSON" else tuple(self._referred(schema, set()))
        given = RegisteredSchema(number, guid, kind, schema.schema_str or "", references)
        return self._compiler.compiled(given, patience)

    def _referred(self, schema: Schema, met: set[str]) -> Iterator[NamedReference]:
        """The schemas that this one refers to, each after those that it refers to itself."""
        for name, subject, version in [(each.name, each.subject, each.version) for each in schema.references or ()]:
            if name is None or subject is None or version is None or name in met:
                continue
            met.add(name)
            if len(met) > MOST_REFERENCES:
                raise NotReadable(f"refers to more than {MOST_REFERENCES} schemas")
            try:
                with _translated():
                    found = self._client.get_version(subject, version, fmt=FORMAT).schema
            except NotInRegistry as absent:
                raise NotReadable(f"refers to {name}, which is not in the registry") from absent
            yield from self._referred(found, met)
            yield NamedReference(name, found.schema_str or "")

    def __repr__(self) -> str:
        return f"<RegistryClient {self.url}>"


class _NoSuchPage(RegistryAway):
    """The address has no page for this question: no registry is there, or one that knows no such questions."""


def _config(registry: RegistrySettings) -> dict[str, Any]:
    config: dict[str, Any] = {"url": registry.url, "timeout": registry.timeout_s, "max.retries": 0}
    if registry.username is not None and registry.password is not None:
        config["basic.auth.user.info"] = f"{registry.username}:{registry.password.get_secret_value()}"
    if registry.token is not None:
        config["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        config["bearer.auth.token"] = registry.token.get_secret_value()
        config["bearer.auth.logical.cluster"] = ""
    for setting in ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location"):
        if (path := getattr(registry, setting)) is not None:
            config[setting.replace("_", ".")] = str(path)
    if registry.ssl_key_password is not None:
        config["ssl.key.password"] = registry.ssl_key_password.get_secret_value()
    return config


def _plain(schema: RegisteredSchema) -> Schema:
    """Our schema of answers, which refers to no other."""
    assert not schema.references
    return Schema(schema.text, schema.type)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except SchemaRegistryError as error:
        raise _verdict(error) from error
    except _NO_ANSWER as error:
        raise RegistryAway(f"{type(error).__name__}: {error}"[:MOST_SAID]) from error


def _verdict(error: SchemaRegistryError) -> Exception:
    status, said = error.http_status_code, str(error.error_message)[:MOST_SAID]
    # A registry's own codes have five digits and begin with the status: 40403. Others are of a page that is not there.
    is_own = str(error.error_code).startswith(str(status)) and error.error_code != status
    if status in _LOGIN_REFUSED:
        return RegistryRefuses(f"it refuses our login, or what we ask: {said} (HTTP status {status})")
    if status == _NOT_FOUND:
        return NotInRegistry("is not in the registry") if is_own else _NoSuchPage(f"it answers as no registry: {said}")
    if status in (_CONFLICT, _UNPROCESSABLE):
        return NotTaken(said)
    return RegistryAway(f"{said} (HTTP status {status})")

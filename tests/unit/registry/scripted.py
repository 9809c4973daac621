"""A registry behind the real client: its HTTP is answered here, without a socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka.schema_registry.common._httpx_compat import httpx

from worker.registry.client import RegistryClient
from worker.settings import RegistrySettings

PAYMENT = '{"type": "record", "name": "Payment", "fields": [{"name": "amount", "type": "double"}]}'
ABSENT = (404, {"error_code": 40403, "message": "Schema 7 not found"})
Answer = tuple[int, Any]


def settings(**given: Any) -> RegistrySettings:
    return RegistrySettings.model_validate({"url": "http://localhost:8081", **given})


class ScriptedRegistry:
    """Answers by path, from `pages`: a status and a body; an exception is raised instead. `asked` has each request."""

    def __init__(self, pages: Mapping[str, Answer | Exception] | None = None) -> None:
        self.pages = dict(pages or {})
        self.asked: list[httpx.Request] = []

    def client(self, **given: Any) -> RegistryClient:
        client = RegistryClient(settings(**given))
        self.attach(client)
        return client

    def attach(self, client: RegistryClient) -> None:
        """Answer this client's requests from now on."""
        rest = client._client._rest_client
        rest.session.close()
        rest.session = httpx.Client(transport=httpx.MockTransport(self._answer), auth=rest.auth)

    @property
    def paths(self) -> list[str]:
        return [request.url.path for request in self.asked]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        page = self.pages.get(request.url.path, (404, ""))
        if isinstance(page, Exception):
            raise page
        status, body = page
        return httpx.Response(status, content=body if isinstance(body, str) else json.dumps(body))


def schema_page(text: str = PAYMENT, **fields: Any) -> Answer:
    return 200, {"schema": text, **fields}


def away() -> Exception:
    return httpx.ConnectError("Connection refused")

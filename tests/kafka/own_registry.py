"""A schema registry of our own, in memory: as much of Confluent's API as its official client asks a registry for.

It has what Apicurio lacks: GUIDs. It speaks TLS, asks for a client's certificate, and for a login.
"""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit
from uuid import NAMESPACE_URL, uuid5

from tests.kafka.certificates import Authority, Certificate

Schema = dict[str, Any]
Found = tuple[int, Any]  # a status and a body
ABSENT: Found = (404, {"error_code": 40403, "message": "Schema not found"})


class OwnRegistry:
    """Owns its server, its thread and its schemas. `login` is the header that each request must have.

    With a `certificate` it speaks TLS, and takes only clients that this authority has signed.
    """

    def __init__(
        self, certificate: Certificate | None = None, clients: Authority | None = None, login: str | None = None
    ) -> None:
        self.login = login
        self._schemas: list[Schema] = []
        self._subjects: dict[str, list[Schema]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if certificate is not None and clients is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.certificate, certificate.key)
            context.load_verify_locations(clients.path)
            context.verify_mode = ssl.CERT_REQUIRED
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def answer(self, path: str, body: Any) -> Found:
        """The answer to a question; to one with a body it is a POST."""
        match [unquote(part) for part in urlsplit(path).path.strip("/").split("/")], body:
            case ["schemas", "types"], None:
                return 200, ["AVRO", "JSON", "PROTOBUF"]
            case ["schemas", "ids" | "guids" as by, name], None:
                key = "id" if by == "ids" else "guid"
                return next(((200, each) for each in self._schemas if str(each[key]) == name), ABSENT)
            case ["subjects", subject, "versions", version], None:
                versions = self._subjects.get(subject, [])
                at = len(versions) if version == "latest" else int(version)
                return (200, versions[at - 1]) if 0 < at <= len(versions) else ABSENT
            case ["subjects", subject, "versions"], dict():
                return 200, self._found(subject, body) or self._registered(subject, body)
            case ["subjects", subject], dict():
                found = self._found(subject, body)
                return ABSENT if found is None else (200, found)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _found(self, subject: str, body: Schema) -> Schema | None:
        return next((each for each in self._subjects.get(subject, []) if each["schema"] == body["schema"]), None)

    def _registered(self, subject: str, body: Schema) -> Schema:
        versions = self._subjects.setdefault(subject, [])
        number, text = len(self._schemas) + 1, json.dumps(body, sort_keys=True)
        schema = {"schemaType": "AVRO", "references": [], **body, "id": number, "guid": str(uuid5(NAMESPACE_URL, text))}
        self._schemas.append(schema)
        versions.append({**schema, "subject": subject, "version": len(versions) + 1})
        return versions[-1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(registry: OwnRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def _answer(self, body: Any) -> None:
            status, said = registry.answer(self.path, body)
            if self.headers.get("authorization") != registry.login:
                status, said = 401, {"error_code": 40101, "message": "Unauthorized"}
            written = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
            self.send_header("content-length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

    return Handler

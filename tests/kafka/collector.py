"""A collector of spans, as far as a test needs one: OTLP over HTTP, decoded by OpenTelemetry's own messages."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.kafka.cluster import TIMEOUT


class Collector:
    """Owns a server on loopback and the spans it was sent. `is_silent`: takes requests and never answers one."""

    def __init__(self, *, is_silent: bool = False) -> None:
        self.services: set[str] = set()
        self.spans: list[Span] = []
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._receiver(is_silent=is_silent))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="collector", daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """The value for OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def named(self, beginning: str) -> list[Span]:
        """The spans whose names begin with `beginning`."""
        return [span for span in self.spans if span.name.startswith(beginning)]

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Keep the spans and service names of one export."""
        for of_resource in request.resource_spans:
            self.services |= {a.value.string_value for a in of_resource.resource.attributes if a.key == "service.name"}
            for of_scope in of_resource.scope_spans:
                self.spans += of_scope.spans

    def _receiver(self, *, is_silent: bool) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the library's name
                body = self.rfile.read(int(self.headers["content-length"]))
                if is_silent:
                    collector._closing.wait(TIMEOUT)
                    return
                assert self.path == "/v1/traces"
                collector.take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Log nothing: the test says what went wrong."""

        return Receiver

    def close(self) -> None:
        """Answer nobody any more."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Spans by OpenTelemetry for the requests that their publishers trace. Nothing else imports opentelemetry.

    publisher's span ──▶ process <request topic> ──┬──▶ send <response topic> ──▶ spans of who reads the answer
                             ▲                     └──▶ send <dead-letter topic>
                             └┄┄ linked both ways ┄┄ inference <model>, one for each run of a batch

A request is followed when its `traceparent` says sampled and the sampler agrees; the worker begins no trace of its own.
Owns the queue of ended spans and the thread that exports them: no other thread waits for a collector. No span holds a
key, a value or an error's text. Imported only when tracing is on; `wrappers.py` calls it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import structlog

from worker.core.addresses import Url
from worker.core.failures import BadConfiguration
from worker.core.records import Batch, Finished, Message, Record
from worker.version import VERSION

try:
    from opentelemetry.context import Context
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, get_current_span, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as missing:
    raise BadConfiguration(
        f"WORKER_TELEMETRY__TRACING: OpenTelemetry is not installed ({missing}): install this package with "
        "its extra, pip install '.[otel]', or switch tracing off"
    ) from missing

NAME = "inference-worker"
TRACEPARENT = "traceparent"
FLAGS = 54  # where the last hex digit of the flags stands, in every version of the header (W3C Trace Context)
SAMPLED = b"13579bdf"  # hex digits whose lowest bit is set

# The SDK's loggers that repeat themselves: an absent collector, spans that its queue has no room for, and what is wrong
# with a publisher's `tracestate`, at each request anew.
COMPLAINERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.trace.span",
)
COMPLAIN_EVERY = 30.0  # seconds; an absent collector would make five lines every 10 s

Echo = Sequence[tuple[str, bytes]]

_W3C = TraceContextTextMapPropagator()


class ServedModel(NamedTuple):
    """What ran: the names that answers carry, and the device."""

    name: str
    version: str
    device: str


class RequestSpans:
    """The spans of one followed request: its own, and those of the messages that answer it."""

    __slots__ = ("own", "sends")

    def __init__(self, own: Span) -> None:
        self.own = own
        self.sends: list[Span] = []


class Tracing:
    """Begins and ends spans, on the loop's thread. `clock` gives nanoseconds since the epoch."""

    def __init__(self, provider: TracerProvider, group_id: str, clock: Callable[[], int] = time.time_ns) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(NAME, VERSION)
        self._group_id = group_id
        self._clock = clock

    @property
    def sampler(self) -> str:
        """What decides, in its own words."""
        return self._provider.sampler.get_description()

    def follow(self, record: Record, echo: Echo) -> RequestSpans | None:
        """The record was taken: its own span, if its publisher and the sampler want one. `echo` has the context."""
        parent = _sampled_parent(echo)
        if parent is None:
            return None
        topic, partition = record.partition
        own = self._tracer.start_span(
            f"process {topic}",
            parent,
            SpanKind.CONSUMER,
            {
                "messaging.system": "kafka",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": topic,
                "messaging.destination.partition.id": str(partition),
                "messaging.consumer.group.name": self._group_id,
                "messaging.kafka.offset": record.offset,
                "messaging.message.body.size": len(record.value or b""),
            },
            start_time=self._clock(),
        )
        return RequestSpans(own) if own.is_recording() else None

    def ran(self, run: Finished, batch: Batch, followed: Sequence[RequestSpans], model: ServedModel) -> None:
        """A run is finished: one span, over now, linked to its followed requests and they to it.

        A child of the first: a root would be sampled by itself, and a sampler by ratio would drop it.
        """
        now = self._clock()
        span = self._tracer.start_span(
            f"inference {model.name}",
            set_span_in_context(followed[0].own),
            attributes={
                "inference_worker.model.name": model.name,
                "inference_worker.model.version": model.version,
                "inference_worker.device": model.device,
                "inference_worker.batch.rows": batch.rows,
                "inference_worker.batch.requests": len(batch.requests),
                "inference_worker.batch.closed_by": batch.closed_by.value,
            },
            links=[Link(spans.own.get_span_context()) for spans in followed],
            start_time=now - round(run.seconds * 1e9),
        )
        if run.failure is not None:
            _fail(span, run.failure.code.value)
        for spans in followed:
            spans.own.add_link(span.get_span_context())
        span.end(now)

    def sent(self, spans: RequestSpans, message: Message) -> bytes:
        """The message goes to the producer: begin its span, and return the `traceparent` for its reader."""
        span = self._tracer.start_span(
            f"send {message.topic}",
            set_span_in_context(spans.own),
            SpanKind.PRODUCER,
            {
                "messaging.system": "kafka",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": message.topic,
                "messaging.message.body.size": len(message.value or b""),
            },
            start_time=self._clock(),
        )
        spans.sends.append(span)
        context = span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()

    def refused(self, spans: RequestSpans, code: str) -> None:
        """The request is answered with this error."""
        _fail(spans.own, code)

    def acknowledged(self, spans: RequestSpans) -> None:
        """All its messages are durable: its spans end."""
        now = self._clock()
        for span in (*spans.sends, spans.own):
            span.end(now)

    def close(self, timeout: float) -> bool:
        """Export what is left. False when that takes more than `timeout` seconds: the rest is given up."""
        # On a daemon thread: the SDK's own waiting takes no timeout, and 10 s and more when the collector is away.
        closing = threading.Thread(target=self._provider.shutdown, name="tracing-close", daemon=True)
        closing.start()
        closing.join(timeout)
        if closing.is_alive():
            structlog.get_logger().warning("spans_given_up", waited_s=timeout)
        return not closing.is_alive()


def start(group_id: str) -> Tracing:
    """Tracing as the standard `OTEL_*` variables want it. Raises `BadConfiguration` for those that make no sense."""
    for name in COMPLAINERS:
        logging.getLogger(name).addFilter(Seldom())
    ours = Resource({SERVICE_NAME: NAME, SERVICE_VERSION: VERSION})
    try:
        resource = Resource.create().merge(ours).merge(OTELResourceDetector().detect())
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except (ValueError, OSError) as error:
        raise BadConfiguration(f"WORKER_TELEMETRY__TRACING: an OTEL_* variable does not fit: {error}") from error
    if host := sent_in_clear(os.environ):
        structlog.get_logger().warning(
            "collector_key_in_clear",
            why="what the collector knows us by (OTEL_EXPORTER_OTLP_HEADERS, or a login in its address) goes to "
            f"{host} unencrypted; give it an https:// endpoint",
        )
    return Tracing(provider, group_id)


def sent_in_clear(environ: Mapping[str, str]) -> str | None:
    """The collector to which headers of the operator's, or a login, go unencrypted over a network; None for none."""
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    headers = environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environ.get("OTEL_EXPORTER_OTLP_HEADERS")
    try:
        url = Url(endpoint or "")
    except ValueError:
        return None  # the SDK's own is this machine; of any other the exporter says what is wrong with it
    return url.host if url.is_in_clear and (headers or url.has_login) else None


class Seldom(logging.Filter):
    """Lets one line of a logger through every `COMPLAIN_EVERY` seconds; the others say the same."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._quiet_until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002  # the signature is the library's
        now = self._clock()
        if now < self._quiet_until:
            return False
        self._quiet_until = now + COMPLAIN_EVERY
        return True


def _sampled_parent(echo: Echo) -> Context | None:
    for name, value in echo:
        if len(value) > FLAGS and value[FLAGS] in SAMPLED and name.lower() == TRACEPARENT:
            context = _W3C.extract({name.lower(): value.decode("latin-1") for name, value in echo})
            return context if get_current_span(context).get_span_context().is_valid else None
    return None


def _fail(span: Span, code: str) -> None:
    span.set_status(StatusCode.ERROR)
    span.set_attribute("error.type", code)

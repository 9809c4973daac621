"""Spans by OpenTelemetry for the requests that their publishers trace. Nothing else imports opentelemetry.

    publisher's span ──▶ process <request topic> ──▶ spans of who reads the answer
                             ┆ linked both ways
                         inference, one for each run of a batch

A request is followed when its `traceparent` says sampled and the sampler agrees; the worker begins no trace of its own.
A span lasts from the taking of its request until the answer is handed to Kafka's client. No span holds a key, a value
or an error's text. The SDK exports ended spans on a thread of its own, so that the loop waits for no collector.

`app.py` imports this module only when tracing is on; `assembly.py` puts `TracedCodec` and `TracedLanes` in the place of
the bare ones. A followed request is one whose reply is a `FollowedReply`: its span travels with it, through batches,
halves and rejections, to its messages. A request that a revoke takes away is forgotten with its span.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from worker.core.failures import BadConfiguration, Code
from worker.core.records import Batch, Finished, Message, Outcome, Record, Rejection, Reply, Request
from worker.ports import Codec, Encoder, Lanes
from worker.telemetry.logs import our_log
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
FLAGS = 54  # the index of the flags' last hex digit, in every version of the header (W3C Trace Context)
SAMPLED = b"13579bdf"  # hex digits whose lowest bit is set

Echo = Sequence[tuple[str, bytes]]

_W3C = TraceContextTextMapPropagator()


class FollowedReply(Reply):
    """The reply of a followed request."""

    span: Span


class Tracing:
    """Begins and ends spans, on the loop's thread. `clock` gives nanoseconds since the epoch."""

    def __init__(self, provider: TracerProvider, group_id: str, clock: Callable[[], int] = time.time_ns) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(NAME, VERSION)
        self._group_id = group_id
        self.clock = clock

    def around(self, codec: TwoWayCodec, lanes: Lanes) -> tuple[TracedCodec, TracedLanes]:
        """Wrap the codec and the lanes in traced ones."""
        return TracedCodec(codec, self), TracedLanes(lanes, self)

    def follow(self, record: Record, echo: Echo) -> Span | None:
        """Begin a taken record's span, if its publisher and the sampler want one. `echo` has the trace context."""
        parent = _sampled_parent(echo)
        if parent is None:
            return None
        topic, partition = record.partition
        attributes: dict[str, str | int] = {  # OpenTelemetry's names for messaging
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": topic,
            "messaging.message.body.size": len(record.value or b""),
            "messaging.destination.partition.id": str(partition),
            "messaging.consumer.group.name": self._group_id,
            "messaging.kafka.offset": record.offset,
        }
        kind, now = SpanKind.CONSUMER, self.clock()
        own = self._tracer.start_span(f"process {topic}", parent, kind, attributes, start_time=now)
        return own if own.is_recording() else None

    def ran(self, run: Finished, batch: Batch, followed: Sequence[Span]) -> None:
        """Record a finished run as one span, linked with its followed requests in both directions.

        The span is a child of the first request's: a sampler by ratio would sample a root by itself, and drop it.
        """
        now = self.clock()
        span = self._tracer.start_span(
            "inference",
            set_span_in_context(followed[0]),
            attributes={
                "inference_worker.batch.rows": batch.rows,
                "inference_worker.batch.requests": len(batch.requests),
                "inference_worker.batch.closed_by": batch.closed_by.value,
            },
            links=[Link(own.get_span_context()) for own in followed],
            start_time=now - round(run.seconds * 1e9),
        )
        if run.failure is not None:
            _fail(span, run.failure.code.value)
        for own in followed:
            own.add_link(span.get_span_context())
        span.end(now)

    def close(self, timeout: float) -> None:
        """Export the spans that are left, for at most `timeout` seconds."""
        # On a daemon thread: the SDK's own shutdown has no timeout, and takes 10 s or more when the collector is away.
        closing = threading.Thread(target=self._provider.shutdown, name="tracing-close", daemon=True)
        closing.start()
        closing.join(timeout)
        if closing.is_alive():
            our_log().warning("spans_given_up", waited_s=timeout)


def start(group_id: str) -> Tracing:
    """Start tracing as the standard `OTEL_*` variables say. Raises `BadConfiguration` where they make no sense."""
    # The SDK repeats its warnings: of a publisher's faulty `tracestate` at each request, of an absent collector at each
    # try, before one error says so.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    ours = Resource({SERVICE_NAME: NAME, SERVICE_VERSION: VERSION})
    try:
        resource = Resource.create().merge(ours).merge(OTELResourceDetector().detect())
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except (ValueError, OSError) as error:
        raise BadConfiguration(f"WORKER_TELEMETRY__TRACING: an OTEL_* variable does not fit: {error}") from error
    return Tracing(provider, group_id)


class TwoWayCodec(Codec, Encoder, Protocol):
    """A codec for both directions: the loop decodes, and the delivery encodes."""


class TracedCodec:
    """Begins a request's span when decoding. Ends it when encoding, and puts its context into the answer."""

    def __init__(self, codec: TwoWayCodec, tracing: Tracing) -> None:
        self._codec, self._tracing = codec, tracing

    def decode(self, record: Record) -> Request | Rejection:
        taken = self._codec.decode(record)
        if not taken.reply.echo:
            return taken
        reply = self._followed(record, taken.reply)
        if isinstance(taken, Rejection):
            return taken._replace(reply=reply)
        taken.reply = reply
        return taken

    def decode_all(self, records: Sequence[Record]) -> Sequence[Request | Rejection]:
        """Decode one by one, because each record has a span of its own."""
        return [self.decode(record) for record in records]

    def refuse(self, record: Record, code: Code, message: str) -> Rejection:
        refused = self._codec.refuse(record, code, message)
        return refused._replace(reply=self._followed(record, refused.reply))

    def _followed(self, record: Record, reply: Reply) -> Reply:
        """The reply, with a span if its request is to be followed."""
        span = self._tracing.follow(record, reply.echo)
        if span is None:
            return reply
        followed = FollowedReply._make(reply)
        followed.span = span
        return followed

    def encode(self, outcome: Outcome) -> Sequence[Message]:
        """The codec's messages. An answer that would echo its request's context names our span instead.

        A dead letter keeps the headers of its request, because it may be sent again.
        """
        messages = self._codec.encode(outcome)
        reply = outcome.reply if isinstance(outcome, Rejection) else outcome.request.reply
        if not isinstance(reply, FollowedReply):
            return messages
        code = dict(messages[0].headers).get("error-code") if messages else None
        if code is not None:
            _fail(reply.span, code.decode())
        reply.span.end(self._tracing.clock())
        if not messages:
            return messages
        context = reply.span.get_span_context()
        traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()
        # At most as long as the header that it replaces, so the answer still fits its topic.
        answer, *letters = messages
        headers = [(name, traceparent if name.lower() == TRACEPARENT else value) for name, value in answer.headers]
        return [answer._replace(headers=headers), *letters]


class TracedLanes:
    """Traces each run in which followed requests took part."""

    def __init__(self, lanes: Lanes, tracing: Tracing) -> None:
        self._lanes, self._tracing = lanes, tracing
        self.submit, self.resubmit, self.probe = lanes.submit, lanes.resubmit, lanes.probe

    @property
    def in_flight(self) -> int:
        return self._lanes.in_flight

    def finished(self, timeout: float) -> Sequence[Finished]:
        finished = self._lanes.finished(timeout)
        for run in finished:
            if run.batch is not None:
                followed = [r.reply.span for r in run.batch.requests if isinstance(r.reply, FollowedReply)]
                if followed:
                    self._tracing.ran(run, run.batch, followed)
        return finished


def _sampled_parent(echo: Echo) -> Context | None:
    for name, value in echo:
        if len(value) > FLAGS and value[FLAGS] in SAMPLED and name.lower() == TRACEPARENT:
            context = _W3C.extract({name.lower(): value.decode("latin-1") for name, value in echo})
            return context if get_current_span(context).get_span_context().is_valid else None
    return None


def _fail(span: Span, code: str) -> None:
    span.set_status(StatusCode.ERROR)
    span.set_attribute("error.type", code)

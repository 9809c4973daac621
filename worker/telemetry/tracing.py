"""Spans by OpenTelemetry for the requests that their publishers trace. Nothing else imports opentelemetry.

    publisher's span ──▶ process <request topic> ──▶ spans of who reads the answer
                             ┆ linked both ways
                         inference, one for each run of a batch

A request is followed when its `traceparent` says sampled and the sampler agrees; the worker begins no trace of its own.
A span lasts from the taking of its request until the answer is handed to Kafka's client. No span holds a key, a value
or an error's text. The SDK exports ended spans on a thread of its own, so that the loop waits for no collector.

`app.py` imports this module only when tracing is on; `assembly.py` puts `TracedCodec` and `TracedLanes` in the place of
the bare ones. The ids of a followed request are `FollowedIds`: its span travels with them, through batches, halves and
rejections, to its answer. A request that a revoke takes away is forgotten with its span.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from worker.core.chunk import Batch, Chunk, Finished, Prediction, Reading
from worker.core.failures import BadConfiguration
from worker.core.records import Answer, Fields, Ids, Message, Record, Rejection
from worker.ports import Codec, Lanes
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


class FollowedIds(Ids):
    """The ids of a followed request. Where they would echo its context, they name our span instead."""

    span: Span


class FollowedAnswer(Message):
    """The answer to a followed request."""

    span: Span


class Tracing:
    """Begins and ends spans, on the loop's thread. `clock` gives nanoseconds since the epoch."""

    def __init__(self, provider: TracerProvider, group_id: str, clock: Callable[[], int] = time.time_ns) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(NAME, VERSION)
        self._group_id = group_id
        self.clock = clock

    def around(self, codec: Codec, lanes: Lanes) -> tuple[TracedCodec, TracedLanes]:
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
                "inference_worker.batch.requests": sum(map(len, batch.chunks)),
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


class TracedCodec:
    """Begins a request's span when reading. Ends it when its answer leaves, and puts its context into the answer."""

    def __init__(self, codec: Codec, tracing: Tracing) -> None:
        self._codec, self._tracing = codec, tracing

    def read(self, records: Sequence[Record]) -> Reading:
        chunks, rejections, waiting = self._codec.read(records)
        for chunk in chunks:
            if chunk.ids is not None:
                chunk.ids = list(map(self._followed, chunk.records, chunk.ids))
        return Reading(chunks, [(at, self._with_span(rejection)) for at, rejection in rejections], waiting)

    def write(self, prediction: Prediction) -> Sequence[Answer]:
        answers = self._codec.write(prediction)
        followed = _spans(prediction.chunk)
        return [_with(answer, followed[at]) if at in followed else answer for at, answer in enumerate(answers)]

    def messages(self, answers: Sequence[Answer]) -> Sequence[Fields]:
        """The codec's messages. A dead letter keeps the headers of its request, because it may be sent again."""
        for answer in answers:
            if isinstance(answer, FollowedAnswer):
                answer.span.end(self._tracing.clock())
            elif isinstance(answer, Rejection) and isinstance(answer.ids, FollowedIds):
                if not answer.is_silent:
                    _fail(answer.ids.span, answer.code.value)
                answer.ids.span.end(self._tracing.clock())
        return self._codec.messages(answers)

    def _with_span(self, rejection: Rejection) -> Rejection:
        return rejection._replace(ids=self._followed(rejection.record, rejection.ids))

    def _followed(self, record: Record, ids: Ids) -> Ids:
        """The ids, with a span if their request is to be followed."""
        span = self._tracing.follow(record, ids.echo) if ids.echo else None
        if span is None:
            return ids
        context = span.get_span_context()
        traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()
        # At most as long as the header that it replaces, so the answer still fits its topic.
        echo = tuple((name, traceparent if name.lower() == TRACEPARENT else value) for name, value in ids.echo)
        followed = FollowedIds(ids.request_id, ids.body_id, echo)
        followed.span = span
        return followed


def _spans(chunk: Chunk) -> dict[int, Span]:
    """The spans of followed requests, by index."""
    return {at: ids.span for at, ids in enumerate(chunk.ids or ()) if isinstance(ids, FollowedIds)}


def _with(answer: Answer, span: Span) -> Answer:
    """The answer with the span, which ends when it leaves; a rejection has it in its ids."""
    if isinstance(answer, Rejection):
        return answer
    followed = FollowedAnswer._make(answer)
    followed.span = span
    return followed


class TracedLanes:
    """Traces each run in which followed requests took part."""

    def __init__(self, lanes: Lanes, tracing: Tracing) -> None:
        self._lanes, self._tracing = lanes, tracing
        self.submit, self.resubmit, self.probe = lanes.submit, lanes.resubmit, lanes.probe

    @property
    def in_flight(self) -> int:
        return self._lanes.in_flight

    @property
    def more_ahead(self) -> int:
        return self._lanes.more_ahead

    @property
    def is_busy(self) -> bool:
        return self._lanes.is_busy

    def finished(self, timeout: float) -> Sequence[Finished]:
        finished = self._lanes.finished(timeout)
        for run in finished:
            if run.batch is not None:
                followed = [span for chunk in run.batch.chunks for span in _spans(chunk).values()]
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

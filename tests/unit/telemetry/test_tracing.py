"""The spans of a followed request, the start and end of tracing, and tracing without its extra."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from tests.builders import World
from tests.chunks import P0, floats, signature, stacker
from tests.fakes import MODEL
from tests.logs import capture_logs
from worker.codecs.codec import Codec
from worker.codecs.wire_contract import OCTETS, Wire
from worker.core.deadlines import Punctuality
from worker.core.failures import BadConfiguration
from worker.core.records import Message, Partition, Record
from worker.core.rejections import Rejections
from worker.delivery.at_least_once import AtLeastOnce
from worker.loop.conduct import Parts
from worker.loop.worker import Worker
from worker.telemetry.tracing import (
    TracedCodec,
    TracedLanes,
    Tracing,
    start,
)

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
MS = 1_000_000  # nanoseconds


def traced(offset: int, *values: float, traceparent: str = SAMPLED, partition: Partition = P0) -> Record:
    """A request with rows of one float and this trace header."""
    headers = (("Traceparent", traceparent.encode()), ("tracestate", b"vendor=1"))
    return Record(partition, offset, b"secret-key", floats(*(values or (offset,))), headers, None)


def plain(offset: int) -> Record:
    return Record(P0, offset, b"secret-key", floats(offset), (), None)


@dataclass
class Followed:
    """A worker among fakes, with real codecs and tracing."""

    sampler: Sampler = DEFAULT_ON
    world: World = field(default_factory=World)

    def __post_init__(self) -> None:
        self._exported = InMemorySpanExporter()
        provider = TracerProvider(sampler=self.sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exported))
        world = self.world
        tracing = Tracing(provider, "scorers", clock=lambda: round(world.clock.now * 1000) * MS)
        wire = Wire("responses", "scorers", "dead-letters", default_content_type=OCTETS)
        self.codec = codec = TracedCodec(Codec([signature()], wire, tell=lambda _: None), tracing)
        world.delivery = AtLeastOnce(
            ledger=world.ledger,
            encoder=codec,
            sink=world.sink,
            offsets=world.source,
            events=world.events,
            commit_interval=0.2,
            clock=world.clock,
        )
        parts = Parts(
            source=world.source,
            codec=codec,
            ledger=world.ledger,
            intake=world.intake,
            stage=world.stage,
            batcher=world.batcher,
            stackers={MODEL: stacker()},
            lanes=TracedLanes(world.lanes, tracing),
            punctuality=Punctuality(world.clock),
            delivery=world.delivery,
            rejections=Rejections(),
            events=world.events,
            signals=world.signals,
            conduct=world.conduct,
            clock=world.clock,
            states=world.states,
            first=world.first,
        )
        world.worker = Worker(parts)
        world.start(P0)

    def answer(self, *records: Record) -> None:
        """Let these requests come, and time pass until all are answered."""
        self.world.broker.append(*records)
        self.world.turn_for(0.5)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """The ended spans whose names begin with `name`."""
        return [span for span in self._exported.get_finished_spans() if span.name.startswith(name)]

    def span(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def message(self, topic: str = "responses") -> Message:
        (message,) = [m for m in self.world.broker.answers if m.topic == topic]
        return message


def context(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def name_of(span: ReadableSpan) -> str:
    """The span's name as a traceparent header has it."""
    return f"00-{context(span).trace_id:032x}-{context(span).span_id:016x}-01"


def parent(span: ReadableSpan) -> str:
    assert span.parent is not None
    return f"{span.parent.span_id:016x}"


def number(span: ReadableSpan) -> str:
    return f"{context(span).span_id:016x}"


def lasted(span: ReadableSpan) -> int:
    """The span's duration in nanoseconds."""
    return (span.end_time or 0) - (span.start_time or 0)


def linked(span: ReadableSpan) -> set[str]:
    return {f"{link.context.span_id:016x}" for link in span.links}


def test_a_trace_goes_through_the_worker() -> None:
    """It goes from the publisher's span over ours to the reader of the answer; other echoed headers stay."""
    followed = Followed()

    followed.answer(traced(0))

    process, inference = followed.span("process"), followed.span("inference")
    assert {f"{context(span).trace_id:032x}" for span in followed.spans()} == {TRACE}
    assert parent(process) == PARENT
    assert parent(inference) == number(process)
    headers = dict(followed.message().headers)
    assert headers["Traceparent"] == name_of(process).encode()
    assert headers["tracestate"] == b"vendor=1"


def test_spans_say_what_the_conventions_ask_for() -> None:
    """They use OpenTelemetry's names for messaging, and our own where it has none."""
    followed = Followed()

    followed.answer(traced(7, 1.0, 2.0))

    process, inference = followed.span("process"), followed.span("inference")
    assert lasted(process) == 9 * MS  # it waits 5 ms for company, and runs for 4
    assert (process.name, process.kind) == ("process requests", SpanKind.CONSUMER)
    assert process.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "requests",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "scorers",
        "messaging.kafka.offset": 7,
        "messaging.message.body.size": 8,
    }
    assert lasted(inference) == 4 * MS
    assert (inference.name, inference.kind) == ("inference", SpanKind.INTERNAL)
    assert inference.attributes == {
        "inference_worker.batch.rows": 2,
        "inference_worker.batch.requests": 1,
        "inference_worker.batch.closed_by": "linger",
    }
    assert {span.status.status_code for span in followed.spans()} == {StatusCode.UNSET}


@pytest.mark.parametrize(
    "traceparent",
    [UNSAMPLED, "", "no traceparent at all", SAMPLED.upper(), f"00-{'0' * 32}-{PARENT}-01", "é" * 60],
    ids=["unsampled", "empty", "nonsense", "upper case", "no trace id", "no ASCII"],
)
def test_a_request_that_nobody_samples_leaves_no_span(traceparent: str) -> None:
    """Its header goes back unchanged, even if it is nonsense."""
    followed = Followed()

    followed.answer(traced(0, traceparent=traceparent))

    assert not followed.spans()
    assert dict(followed.message().headers)["Traceparent"] == traceparent.encode()


def test_a_run_and_its_followed_requests_are_linked_both_ways() -> None:
    """The batch has one span, a child of the first request's. From each trace the others can be found."""
    followed = Followed()

    followed.answer(traced(0), plain(1), traced(2), traced(3, traceparent=UNSAMPLED))

    inference, requests = followed.span("inference"), followed.spans("process")
    assert (inference.attributes or {})["inference_worker.batch.requests"] == 4
    assert linked(inference) == {number(request) for request in requests}
    assert [linked(request) for request in requests] == [{number(inference)}] * 2
    assert parent(inference) == number(requests[0])


def test_a_rejected_request_shows_its_code() -> None:
    """Its answer continues our trace; the dead letter keeps the request's own header, to be sent again."""
    followed = Followed()

    followed.answer(traced(0)._replace(value=b"odd"))

    process = followed.span("process")
    assert process.status.status_code is StatusCode.ERROR
    assert (process.attributes or {})["error.type"] == "INVALID_ARGUMENT"
    assert dict(followed.message().headers)["Traceparent"] == name_of(process).encode()
    assert dict(followed.message("dead-letters").headers)["Traceparent"] == SAMPLED.encode()


def test_no_span_holds_a_key_a_value_or_an_error_text() -> None:
    """Spans hold only topic names, counts and sizes of what a publisher sends."""
    followed = Followed()
    wrong = Record(P0, 1, b"secret-key", b"secret-value", (("traceparent", SAMPLED.encode()),), None)

    followed.answer(traced(0), wrong)

    assert len(followed.spans("process")) == 2
    assert "secret" not in "".join(span.to_json() for span in followed.spans())


def test_a_revoked_request_is_forgotten() -> None:
    """Its next owner traces it; here its trace ends without a span, though its run finishes."""
    followed = Followed()
    world = followed.world
    world.lanes.seconds = lambda: 60.0
    world.broker.append(*[traced(offset) for offset in range(4)])
    world.turn(3)

    world.source.revoke(P0)
    world.turn_for(120.0)

    assert len(followed.spans("inference")) == 1
    assert not followed.spans("process")


# Start and end


class Stuck(SpanExporter):
    """A collector that does not answer until it is released."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.let_go.wait(30.0)
        return SpanExportResult.SUCCESS


def provider(exporter: SpanExporter) -> TracerProvider:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(exporter))
    return made


def end_a_span(tracing: Tracing) -> None:
    span = tracing.follow(plain(0), [("traceparent", SAMPLED.encode())])
    assert span is not None
    span.end()


def test_a_collector_that_does_not_answer_is_not_waited_for() -> None:
    """The remaining spans are given up, and the log says so."""
    collector = Stuck()
    tracing = Tracing(provider(collector), "scorers")
    end_a_span(tracing)

    with capture_logs() as lines:
        tracing.close(timeout=0.01)
    collector.let_go.set()

    assert [line["event"] for line in lines] == ["spans_given_up"]


def test_variables_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start reads and refuses them."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")

    with pytest.raises(BadConfiguration, match="an OTEL_\\* variable does not fit: max_queue_size must be"):
        start("scorers")


def test_without_its_extra_tracing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a wrong configuration, exit code 2."""
    monkeypatch.delitem(sys.modules, "worker.telemetry.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    with pytest.raises(BadConfiguration, match=r"pip install '\.\[otel\]'"):
        importlib.import_module("worker.telemetry.tracing")


def test_a_start_imports_neither_tracing_nor_what_the_first_scrape_wants() -> None:
    """So a start is fast, and works without the extra."""
    imported = "{name.split('.')[0] for name in sys.modules}"
    late = "{'opentelemetry', 'prometheus_client'}"
    command = [sys.executable, "-c", f"import sys, worker.app, worker.assembly; print(({imported}) & {late})"]

    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603  # a fixed command

    assert found == "set()\n"

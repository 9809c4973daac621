"""Which spans a followed request leaves behind, how they hang together, and what it gets back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from tests.builders import P0, POISON, World, floats, signature, stacker
from tests.fakes import MODEL, TransactionFate
from worker.codecs import Codecs, Wire
from worker.codecs.wire_contract import OCTETS
from worker.core.deadlines import Punctuality
from worker.core.failures import Code
from worker.core.records import Message, Partition, Record
from worker.core.rejections import Rejections
from worker.delivery.at_least_once import AtLeastOnce
from worker.delivery.exactly_once import ExactlyOnce
from worker.loop.composition import compose
from worker.telemetry.tracing.spans import ServedModel, Tracing
from worker.telemetry.tracing.wrappers import TracedCodec, TracedLanes, TracedSink, TracedTransactions

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
MS = 1_000_000  # nanoseconds


def traced(offset: int, *values: float, traceparent: str = SAMPLED, partition: Partition = P0) -> Record:
    """A request with rows of one float, whose publisher says this of its trace."""
    headers = (("Traceparent", traceparent.encode()), ("tracestate", b"vendor=1"))
    return Record(partition, offset, b"secret-key", floats(*(values or (offset,))), headers, None)


def plain(offset: int) -> Record:
    return Record(P0, offset, b"secret-key", floats(offset), (), None)


@dataclass
class Followed:
    """A worker among fakes, real codecs, and tracing around it."""

    sampler: Sampler = DEFAULT_ON
    world: World = field(default_factory=World)

    def __post_init__(self) -> None:
        self._exported = InMemorySpanExporter()
        provider = TracerProvider(sampler=self.sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exported))
        world = self.world
        tracing = Tracing(provider, "scorers", clock=lambda: round(world.clock.now * 1000) * MS)
        wire = Wire("responses", "scorers", "dead-letters", default_content_type=OCTETS)
        self.codec = codec = TracedCodec(Codecs([signature()], wire, tell=lambda _: None), tracing)
        self.sink = TracedSink(world.sink, tracing)
        self.transactions = TracedTransactions(world.transactions, tracing)
        world.delivery = self._exactly_once() if world.exactly_once else self._at_least_once()
        world.worker = compose(
            source=world.source,
            offsets=world.source,
            notes=world.source,
            codec=codec,
            ledger=world.ledger,
            intake=world.intake,
            batcher=world.batcher,
            suspects=world.suspects,
            stackers={MODEL: stacker()},
            lanes=TracedLanes(world.lanes, tracing, ServedModel("digits", "1", "cpu")),
            punctuality=Punctuality(world.clock),
            delivery=world.delivery,
            rejections=Rejections(),
            events=world.events,
            signals=world.signals,
            conduct=world.conduct,
            clock=world.clock,
        )
        world.start(P0)

    def _at_least_once(self) -> AtLeastOnce:
        return AtLeastOnce(
            ledger=self.world.ledger,
            encoder=self.codec,
            sink=self.sink,
            offsets=self.world.source,
            events=self.world.events,
            commit_interval=0.2,
            clock=self.world.clock,
        )

    def _exactly_once(self) -> ExactlyOnce:
        return ExactlyOnce(
            ledger=self.world.ledger,
            encoder=self.codec,
            transactions=self.transactions,
            group=self.world.source,
            events=self.world.events,
            commit_interval=0.1,
            clock=self.world.clock,
        )

    def answer(self, *records: Record) -> None:
        """Let these requests come, and time pass until all is over."""
        self.world.broker.append(*records)
        self.world.turn_for(0.5)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """The ended spans whose names begin so."""
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
    """As a header carries it."""
    return f"00-{context(span).trace_id:032x}-{context(span).span_id:016x}-01"


def parent(span: ReadableSpan) -> str:
    assert span.parent is not None
    return f"{span.parent.span_id:016x}"


def number(span: ReadableSpan) -> str:
    return f"{context(span).span_id:016x}"


def lasted(span: ReadableSpan, since: ReadableSpan) -> tuple[int, int]:
    """From when to when, in milliseconds."""
    begin, end, zero = span.start_time, span.end_time, since.start_time
    assert begin is not None
    assert end is not None
    assert zero is not None
    return (begin - zero) // MS, (end - zero) // MS


def linked(span: ReadableSpan) -> set[str]:
    return {f"{link.context.span_id:016x}" for link in span.links}


def test_a_trace_goes_through_the_worker() -> None:
    """From the publisher's span over ours to the reader of the answer; other echoes stay as they came."""
    followed = Followed()

    followed.answer(traced(0))

    process, inference, send = (followed.span(name) for name in ("process", "inference", "send"))
    assert {f"{context(span).trace_id:032x}" for span in followed.spans()} == {TRACE}
    assert parent(process) == PARENT
    assert parent(inference) == parent(send) == number(process)
    headers = dict(followed.message().headers)
    assert headers["Traceparent"] == name_of(send).encode()
    assert headers["tracestate"] == b"vendor=1"


def test_spans_say_what_the_conventions_ask_for() -> None:
    """OpenTelemetry's names for messaging, and ours for what it has none for."""
    followed = Followed()

    followed.answer(traced(7, 1.0, 2.0))

    process, inference, send = (followed.span(name) for name in ("process", "inference", "send"))
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
    assert (send.name, send.kind) == ("send responses", SpanKind.PRODUCER)
    assert (send.attributes or {})["messaging.operation.type"] == "send"
    assert (inference.name, inference.kind) == ("inference digits", SpanKind.INTERNAL)
    assert inference.attributes == {
        "inference_worker.model.name": "digits",
        "inference_worker.model.version": "1",
        "inference_worker.device": "cpu",
        "inference_worker.batch.rows": 2,
        "inference_worker.batch.requests": 1,
        "inference_worker.batch.closed_by": "linger",
    }
    assert {span.status.status_code for span in followed.spans()} == {StatusCode.UNSET}


def test_spans_last_from_take_to_acknowledgement() -> None:
    """A request waits 5 ms for company and runs for 4; its answer takes 2, and is heard of within 5 more."""
    followed = Followed()

    followed.answer(traced(0))

    process, inference, send = (followed.span(name) for name in ("process", "inference", "send"))
    assert lasted(inference, since=process) == (5, 9)
    assert lasted(send, since=process) == (9, 15)
    assert lasted(process, since=process) == (0, 15)


@pytest.mark.parametrize(
    "traceparent",
    [UNSAMPLED, "", "no traceparent at all", SAMPLED.upper(), f"00-{'0' * 32}-{PARENT}-01", "é" * 60],
    ids=["unsampled", "empty", "nonsense", "upper case", "no trace id", "no ASCII"],
)
def test_a_request_that_nobody_samples_leaves_no_span(traceparent: str) -> None:
    """And its header goes back as it came, nonsense too."""
    followed = Followed()

    followed.answer(traced(0, traceparent=traceparent))

    assert not followed.spans()
    assert dict(followed.message().headers)["Traceparent"] == traceparent.encode()


def test_the_worker_begins_no_trace_of_its_own() -> None:
    """Not even under a sampler that takes all."""
    followed = Followed()

    followed.answer(plain(0))

    assert not followed.spans()
    assert set(dict(followed.message().headers)) == {"content-type", "status", "model-version", "source"}


def test_the_sampler_may_say_no() -> None:
    """Then the trace goes on without us: the header goes back as it came."""
    followed = Followed(ParentBased(TraceIdRatioBased(1.0), remote_parent_sampled=TraceIdRatioBased(0.0)))

    followed.answer(traced(0))

    assert not followed.spans()
    assert dict(followed.message().headers)["Traceparent"] == SAMPLED.encode()


def test_a_run_and_its_followed_requests_are_linked_both_ways() -> None:
    """One span for the batch, a child of the first: from each trace the others can be found."""
    followed = Followed()

    followed.answer(traced(0), plain(1), traced(2), traced(3, traceparent=UNSAMPLED))

    inference, requests = followed.span("inference"), followed.spans("process")
    assert (inference.attributes or {})["inference_worker.batch.requests"] == 4
    assert linked(inference) == {number(request) for request in requests}
    assert [linked(request) for request in requests] == [{number(inference)}] * 2
    assert parent(inference) == number(requests[0])


def test_a_ratio_of_roots_loses_no_run() -> None:
    """The run of a sampled request is sampled with it, whatever is decided about new traces."""
    followed = Followed(ParentBased(TraceIdRatioBased(0.0)))

    followed.answer(traced(0))

    assert len(followed.spans("inference")) == 1


def test_a_rejected_request_shows_its_code_and_both_its_messages() -> None:
    """Its answer goes on with our trace; the dead letter keeps what the request came with, to be sent again."""
    followed = Followed()

    followed.answer(traced(0)._replace(value=b"odd"))

    process = followed.span("process")
    assert process.status.status_code is StatusCode.ERROR
    assert (process.attributes or {})["error.type"] == "INVALID_ARGUMENT"
    assert [span.name for span in followed.spans("send")] == ["send responses", "send dead-letters"]
    assert dict(followed.message().headers)["Traceparent"] == name_of(followed.span("send responses")).encode()
    assert dict(followed.message("dead-letters").headers)["Traceparent"] == SAMPLED.encode()


def test_each_run_of_a_halved_batch_has_its_span() -> None:
    """The failed ones say so, and only the bad request is marked as an error."""
    followed = Followed()

    followed.answer(traced(0), traced(1, POISON), traced(2), traced(3))

    runs = followed.spans("inference")
    assert [(run.attributes or {})["inference_worker.batch.requests"] for run in runs] == [4, 2, 2, 1, 1]
    assert [run.status.status_code is StatusCode.ERROR for run in runs] == [True, True, False, False, True]
    failed = [s for s in followed.spans("process") if s.status.status_code is StatusCode.ERROR]
    assert [(span.attributes or {})["messaging.kafka.offset"] for span in failed] == [1]


def test_a_request_cut_into_pieces_is_one_request() -> None:
    """With a run for each of its pieces."""
    followed = Followed()

    followed.answer(traced(0, *range(10)))

    assert linked(followed.span("process")) == {number(run) for run in followed.spans("inference")}
    assert len(followed.spans("inference")) == 3
    assert len(followed.spans("send")) == 1


def test_no_span_holds_a_key_a_value_or_an_error_text() -> None:
    """Nothing of what a publisher sends but names of topics, counts and sizes."""
    followed = Followed()
    wrong = Record(P0, 1, b"secret-key", b"secret-value", (("traceparent", SAMPLED.encode()),), None)

    followed.answer(traced(0), wrong)

    assert len(followed.spans("process")) == 2
    assert "secret" not in "".join(span.to_json() for span in followed.spans())


def test_a_revoked_request_is_forgotten() -> None:
    """Its next owner traces it; here nothing is left of it, though its run finishes."""
    followed = Followed()
    world = followed.world
    world.lanes.seconds = lambda: 60.0
    world.broker.append(*[traced(offset) for offset in range(4)])
    world.turn(3)

    world.source.revoke(P0)
    world.turn_for(120.0)

    assert len(followed.spans("inference")) == 1
    assert not followed.spans("process")
    assert not followed.sink._on_the_way


def exactly_once() -> Followed:
    return Followed(world=World(exactly_once=True))


def test_under_exactly_once_spans_last_until_the_commit() -> None:
    """A request waits 5 ms for company and runs for 4; its transaction is complete then, and takes 6 to end."""
    followed = exactly_once()

    followed.answer(traced(0))

    process, send = followed.span("process"), followed.span("send")
    begin, end = lasted(send, since=process)
    assert begin == 9
    assert end >= 15
    assert lasted(process, since=process) == (0, end)
    assert dict(followed.message().headers)["Traceparent"] == name_of(send).encode()


def test_a_committed_rejection_ends_the_spans_of_both_its_messages() -> None:
    """Answer and dead letter are in one transaction."""
    followed = exactly_once()

    followed.answer(traced(0)._replace(value=b"odd"), traced(1))

    assert [span.name for span in followed.spans("send")] == ["send responses", "send dead-letters", "send responses"]
    assert len(followed.spans("process")) == 2


def test_a_failed_transaction_leaves_no_spans_but_those_of_the_next_reading() -> None:
    """Each request has one `process` span, and its answer names the `send` that was committed; nothing piles up."""
    followed = exactly_once()
    fates = [TransactionFate(is_committed=False, failure="taken back")] * 5
    followed.world.transactions.fate = lambda: fates.pop() if fates else TransactionFate()

    followed.answer(*[traced(offset) for offset in range(4)])
    followed.world.turn_for(60.0)

    assert not fates
    assert followed.world.events.counted["rewound"] == 5
    assert [(s.attributes or {})["messaging.kafka.offset"] for s in followed.spans("process")] == [0, 1, 2, 3]
    assert {dict(m.headers)["Traceparent"] for m in followed.world.broker.answers} == {
        name_of(send).encode() for send in followed.spans("send")
    }
    assert not followed.transactions._inside


def test_a_request_that_is_not_even_decoded_is_followed() -> None:
    """It ended the process before: its answer tells its publisher's trace so."""
    followed = Followed()

    refused = followed.codec.refuse(traced(0), Code.INTERNAL, "not run again")
    answer, letter = followed.codec.encode(refused)

    assert dict(answer.headers)["Traceparent"] != SAMPLED.encode()
    assert dict(letter.headers)["Traceparent"] == SAMPLED.encode()

"""Tracing with a real worker: spans reach a collector, and an absent collector does no harm."""

from __future__ import annotations

from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.kafka.cluster import Cluster, Sent
from tests.kafka.collector import Collector
from tests.kafka.scene import RAW_HEADER, Scene, row

ON = {"TELEMETRY__TRACING": "true"}
PARENT = "b7ad6b7169203331"


def traceparent(number: int, *, sampled: bool = True) -> str:
    """The n-th request's `traceparent`, with a trace of its own."""
    return f"00-{number + 1:032x}-{PARENT}-{sampled:02x}"


def request(number: int, trace: str | None, value: bytes | None = None) -> Sent:
    headers = [RAW_HEADER] if trace is None else [RAW_HEADER, ("traceparent", trace.encode())]
    return Sent(b"key-%d" % number, row(number) if value is None else value, headers)


def of_trace(spans: list[Span], number: int) -> Span:
    """The only span of the n-th request's trace."""
    (span,) = [span for span in spans if span.trace_id.hex() == f"{number + 1:032x}"]
    return span


def test_a_collector_gets_the_traces_that_publishers_sample(kafka: Cluster, tmp_path: Path) -> None:
    """Each trace goes from the publisher's span to the answer's header; the last spans leave before the worker ends."""
    with Collector() as collector, Scene(kafka, tmp_path, ON, partitions=1) as scene:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_SERVICE_NAME": "digits"}
        replica = scene.start(variables=variables).wait_until_ready()
        kinds = (traceparent, lambda n: traceparent(n, sampled=False), lambda _: None)
        scene.publish([request(n, kinds[n % 3](n)) for n in range(30)])
        scene.publish([request(30, traceparent(30), b"odd")])
        scene.verdict().expect_clean()
        replica.terminate()
        assert replica.exit_code() == 0, replica.log

    assert collector.services == {"digits"}
    answers = {answer.source.offset: answer for answer in scene.auditor.answers if answer.source}
    sampled = [*range(0, 30, 3), 30]
    processes = collector.named("process")
    assert len(processes) == len(sampled)
    for number in sampled:
        process = of_trace(processes, number)
        assert process.parent_span_id.hex() == PARENT
        assert answers[number].headers["traceparent"] == f"00-{process.trace_id.hex()}-{process.span_id.hex()}-01"
    for number in range(1, 30, 3):
        assert answers[number].headers["traceparent"] == traceparent(number, sampled=False)
    runs = collector.named("inference")
    assert {link.span_id for run in runs for link in run.links} == {
        of_trace(processes, n).span_id for n in sampled[:-1]
    }
    assert of_trace(processes, 30).status.code == Status.STATUS_CODE_ERROR

"""Tracing with a real worker: spans at a collector, and no harm from one that is away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.kafka.broker import free_port
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.collector import Collector
from tests.kafka.replica import Replica
from tests.kafka.scene import RAW_HEADER, Scene, row

ON = {"TELEMETRY__TRACING": "true"}
PARENT = "b7ad6b7169203331"


def traceparent(number: int, *, sampled: bool = True) -> str:
    """Of the n-th request: a trace of its own."""
    return f"00-{number + 1:032x}-{PARENT}-{sampled:02x}"


def request(number: int, trace: str | None, value: bytes | None = None) -> Sent:
    headers = [RAW_HEADER] if trace is None else [RAW_HEADER, ("traceparent", trace.encode())]
    return Sent(b"key-%d" % number, row(number) if value is None else value, headers)


def of_trace(spans: list[Span], number: int) -> Span:
    """The only one of the n-th request's trace."""
    (span,) = [span for span in spans if span.trace_id.hex() == f"{number + 1:032x}"]
    return span


def test_a_collector_gets_the_traces_that_publishers_sample(kafka: Cluster, tmp_path: Path) -> None:
    """Each from the publisher's span to the answer's header; the last ones are sent before the worker ends."""
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


@contextmanager
def nobody() -> Iterator[str]:
    """An address where no collector listens."""
    yield f"http://127.0.0.1:{free_port()}"


@contextmanager
def silence() -> Iterator[str]:
    """A collector that takes all and answers nothing."""
    with Collector(is_silent=True) as collector:
        yield collector.endpoint


def logged_at(replica: Replica, event: str) -> datetime:
    """When the worker said it: its exit takes as long as the machine likes."""
    lines = [json.loads(line) for line in replica.log.splitlines() if line.startswith("{")]
    return next(datetime.fromisoformat(line["at"]) for line in lines if line["event"] == event)


@pytest.mark.parametrize("collector", [pytest.param(nobody, marks=pytest.mark.slow), silence])
def test_a_collector_that_is_away_costs_a_second_at_the_end(
    kafka: Cluster, tmp_path: Path, collector: Callable[[], AbstractContextManager[str]]
) -> None:
    """All requests are answered, the worker ends well and in time, and says once what is the matter."""
    with collector() as endpoint, Scene(kafka, tmp_path, ON, partitions=1) as scene:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        replica = scene.start(variables=variables).wait_until_ready()
        for batch in range(5):
            scene.publish([request(batch * 1000 + n, traceparent(batch * 1000 + n)) for n in range(1000)])
            scene.verdict().expect_clean()

        asked = datetime.now(UTC)
        replica.terminate()

        assert replica.exit_code() == 0, replica.log
        assert logged_at(replica, "stopped") - asked < timedelta(seconds=9)  # the exporter alone waits for ten
        assert replica.log.count("spans_given_up") == 1
        assert replica.log.count("opentelemetry") <= 3, replica.log

"""How tracing starts and ends, and what it does without a collector, without sense, and without its extra."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from worker.core.failures import BadConfiguration
from worker.core.records import Partition, Record
from worker.telemetry.tracing.spans import COMPLAIN_EVERY, COMPLAINERS, Seldom, Tracing, sent_in_clear, start

SAMPLED = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Stuck(SpanExporter):
    """A collector that never answers, until it is let go."""

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
    record = Record(Partition("requests", 0), 0, None, None, (), None)
    spans = tracing.follow(record, [("traceparent", SAMPLED)])
    assert spans is not None
    spans.own.end()


def test_a_collector_that_does_not_answer_is_not_waited_for() -> None:
    """What is left is given up, and the log says so."""
    collector = Stuck()
    tracing = Tracing(provider(collector), "scorers")
    end_a_span(tracing)

    with capture_logs() as lines:
        is_all_exported = tracing.close(timeout=0.01)
    collector.let_go.set()

    assert not is_all_exported
    assert [line["event"] for line in lines] == ["spans_given_up"]


def test_what_is_left_is_exported_at_the_end() -> None:
    """And then nothing is said about it."""
    exported = InMemorySpanExporter()
    tracing = Tracing(provider(exported), "scorers")
    end_a_span(tracing)

    with capture_logs() as lines:
        is_all_exported = tracing.close(timeout=10.0)

    assert is_all_exported
    assert len(exported.get_finished_spans()) == 1
    assert not lines


def test_a_complaint_that_repeats_itself_is_told_now_and_then() -> None:
    """A collector that is away for a night does not fill the log."""
    now = 1000.0
    seldom = Seldom(clock=lambda: now)
    line = logging.LogRecord("a", logging.WARNING, "a.py", 1, "away", None, None)

    told = []
    for _ in range(5):
        told.append(seldom.filter(line))
        now += COMPLAIN_EVERY / 2

    assert told == [True, False, True, False, True]


@pytest.fixture
def quiet_loggers() -> Iterator[None]:
    """`start` puts filters on the SDK's loggers; the next test starts without."""
    yield
    for name in COMPLAINERS:
        logging.getLogger(name).filters[:] = []


@pytest.mark.usefixtures("quiet_loggers")
def test_the_service_is_named_by_the_operator_or_else_by_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES mean what they mean everywhere."""
    ours = start("scorers")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "digits")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    theirs = start("scorers")

    found = [tracing._provider.resource.attributes for tracing in (ours, theirs)]

    assert [attributes["service.name"] for attributes in found] == ["inference-worker", "digits"]
    assert found[1]["deployment.environment.name"] == "test"
    assert ours.close(10.0)
    assert theirs.close(10.0)


@pytest.mark.usefixtures("quiet_loggers")
def test_variables_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, where it is read."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")

    with pytest.raises(BadConfiguration, match="an OTEL_\\* variable does not fit: max_queue_size must be"):
        start("scorers")


@pytest.mark.parametrize(
    ("environ", "host"),
    [
        ({}, None),
        ({"HEADERS": "api-key=1"}, None),
        ({"ENDPOINT": "http://collector:4318"}, None),
        ({"ENDPOINT": "http://collector:4318", "HEADERS": "api-key=1"}, "collector:4318"),
        ({"TRACES_ENDPOINT": "HTTP://collector/v1/traces", "TRACES_HEADERS": "api-key=1"}, "collector"),
        ({"ENDPOINT": "http://collector", "TRACES_ENDPOINT": "https://collector", "HEADERS": "api-key=1"}, None),
        ({"ENDPOINT": "http://127.0.0.1:4318", "HEADERS": "api-key=1"}, None),
        ({"ENDPOINT": "collector", "HEADERS": "api-key=1"}, None),
        ({"ENDPOINT": "http://me:hunter2@collector:4318/"}, "collector:4318"),
        ({"ENDPOINT": "http://127.0.0.1@collector"}, "collector"),
    ],
)
def test_a_key_that_goes_to_a_collector_in_clear_is_told(environ: dict[str, str], host: str | None) -> None:
    """Headers of the operator's are where a collector's key stands; to this machine nothing crosses a network."""
    assert sent_in_clear({f"OTEL_EXPORTER_OTLP_{name}": value for name, value in environ.items()}) == host


@pytest.mark.usefixtures("quiet_loggers")
def test_the_start_says_that_a_key_goes_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, without the key."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.invalid:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2")

    with capture_logs() as lines:
        start("scorers").close(10.0)

    [line] = [line for line in lines if line["event"] == "collector_key_in_clear"]
    assert "goes to collector.invalid:4318 unencrypted" in line["why"]
    assert "hunter2" not in str(line)


def test_without_its_extra_tracing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong configuration, exit code 2."""
    monkeypatch.delitem(sys.modules, "worker.telemetry.tracing.spans")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    with pytest.raises(BadConfiguration, match=r"pip install '\.\[otel\]'"):
        importlib.import_module("worker.telemetry.tracing.spans")


def test_a_worker_without_tracing_imports_none_of_it() -> None:
    """So it starts as fast as before, and where the extra is not installed."""
    imported = "{name.split('.')[0] for name in sys.modules}"
    asked = f"import sys, worker.app, worker.assembly; print({imported} & {{'opentelemetry'}})"
    command = [sys.executable, "-c", asked]

    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603  # a fixed command

    assert found == "set()\n"

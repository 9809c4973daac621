"""The verdicts that probes get, and the pages as values. The server itself is tested over a socket elsewhere."""

from http import HTTPStatus

import pytest

from worker.telemetry.health import Deployment, Pages, liveness
from worker.telemetry.metrics import Snapshot
from worker.telemetry.watchdog import TimeLimits

DEPLOYMENT = Deployment("digits", ("requests",), "answers", "at_least_once", lanes=1, has_state=False)
LIMITS = TimeLimits(turn=60.0, run=30.0, stop=20.0)


@pytest.mark.parametrize(
    ("snapshot", "verdict"),
    [
        (Snapshot(), None),
        (Snapshot(turned_at=990.0), None),
        (Snapshot(turned_at=930.0), "the loop has not turned for 70 s"),
        (Snapshot(turned_at=999.9, running_since=980.0), None),
        (Snapshot(turned_at=999.9, running_since=960.0), "an inference has been running for 40 s"),
        (Snapshot(turned_at=930.0, running_since=930.0), "an inference has been running for 70 s"),
    ],
)
def test_alive_means_that_the_loop_turns_and_no_inference_hangs(snapshot: Snapshot, verdict: str | None) -> None:
    """Not that a broker can be reached; and a worker that is still starting is alive."""
    assert liveness(snapshot, 1000.0, LIMITS) == verdict


@pytest.mark.parametrize(
    ("path", "snapshot", "status", "body"),
    [
        ("/healthz", Snapshot(turned_at=999.0), HTTPStatus.OK, b"ok\n"),
        (
            "/v2/health/live",
            Snapshot(turned_at=9.0),
            HTTPStatus.SERVICE_UNAVAILABLE,
            b"the loop has not turned for 991 s\n",
        ),
        ("/v2/health/ready", Snapshot(unready=None), HTTPStatus.OK, b"ok\n"),
        ("/healthz", Snapshot(turned_at=9.0), HTTPStatus.SERVICE_UNAVAILABLE, b"the loop has not turned for 991 s\n"),
        ("/readyz", Snapshot(unready=None), HTTPStatus.OK, b"ok\n"),
        ("/readyz?verbose", Snapshot(), HTTPStatus.SERVICE_UNAVAILABLE, b"starting\n"),
        ("/startupz", Snapshot(unready="no model"), HTTPStatus.SERVICE_UNAVAILABLE, b"no model\n"),
        ("/startupz", Snapshot(unready="states are read back", turned_at=999.0), HTTPStatus.OK, b"ok\n"),
        ("/startupz", Snapshot(unready=None), HTTPStatus.OK, b"ok\n"),
        ("/", Snapshot(), HTTPStatus.NOT_FOUND, b"/healthz /readyz /startupz /metrics /v2\n"),
        ("/status", Snapshot(), HTTPStatus.NOT_FOUND, b"/healthz /readyz /startupz /metrics /v2\n"),
    ],
)
def test_a_page_says_why(path: str, snapshot: Snapshot, status: HTTPStatus, body: bytes) -> None:
    """In one line that an operator reads in the pod's events."""
    assert Pages(lambda: snapshot, LIMITS, lambda: 1000.0).answer(path, "")[:2] == (status, body)


@pytest.mark.parametrize("path", ["/", "/status", "/page.js", "/v2", "/v2/models/digits", "/config"])
@pytest.mark.parametrize("host", ["evil.example", "EVIL.example:8080", "evil.example.", "127.0.0.1.nip.io", "a.b:1:2"])
def test_a_name_that_anyone_may_own_is_refused(path: str, host: str) -> None:
    """Its owner may have a page there, and let the name lead here afterwards. The answer says what to do."""
    status, body, _ = Pages(Snapshot, LIMITS, lambda: 1000.0, DEPLOYMENT, ["worker.example.com"]).answer(path, "", host)

    assert status == HTTPStatus.MISDIRECTED_REQUEST
    assert b"WORKER_TELEMETRY__REPLICAS" in body


@pytest.mark.parametrize(
    "host",
    [
        *("", "127.0.0.1:8080", "10.1.2.3", "[::1]:8080", "[fd00::1]", "localhost:8080", "worker-1", "worker:80"),
        *("w.localhost", "worker.ns.svc", "worker.ns.svc.cluster.local:8080", "host.docker.internal", "pi.local"),
        *("Worker.Example.com:443", "worker.example.com"),
    ],
)
def test_an_address_and_a_name_of_ours_are_answered(host: str) -> None:
    """Addresses lead where they say, and public DNS has none of these names; the last is a replica's."""
    pages = Pages(Snapshot, LIMITS, lambda: 1000.0, DEPLOYMENT, ["Worker.example.com"])

    assert pages.answer("/status", "", host)[0] == HTTPStatus.OK


@pytest.mark.parametrize("path", ["/healthz", "/startupz?x", "/readyz", "/metrics", "/v2/health/ready"])
def test_probes_and_scrapers_ask_by_any_name(path: str) -> None:
    """A balancer's, or a node's in a company's DNS: a refusal would take the worker out of service."""
    answer = Pages(lambda: Snapshot(unready=None), LIMITS, lambda: 1000.0).answer(path, "", "node-1.example.com:8080")

    assert answer[0] == HTTPStatus.OK


@pytest.mark.parametrize("path", ["/page.py", "/status.py", "/../health.py", "/index.html", "//", "/page.css/"])
def test_no_other_file_is_served(path: str) -> None:
    """The page's files are named one by one."""
    pages = Pages(Snapshot, LIMITS, lambda: 1000.0, DEPLOYMENT)

    assert pages.answer(path, "")[:2] == (HTTPStatus.NOT_FOUND, b"/ /healthz /readyz /startupz /metrics /v2\n")


def test_metrics_come_in_the_format_asked_for() -> None:
    """Prometheus's text, or OpenMetrics."""
    pages = Pages(Snapshot, LIMITS, lambda: 1000.0)

    _, text, plain = pages.answer("/metrics", "")
    _, strict, openmetrics = pages.answer("/metrics", "application/openmetrics-text; version=1.0.0")

    assert plain.startswith("text/plain")
    assert b"inference_worker_ready" in text
    assert b"process_resident_memory_bytes" in text
    assert openmetrics.startswith("application/openmetrics-text")
    assert strict.endswith(b"# EOF\n")


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
@pytest.mark.parametrize("version", ["é", "²", '"1.0.0"', "1.x", "2.0.0é", "1..0", "1.0.", "1" * 5000, "-1", " 1.0"])
def test_metrics_come_plain_where_the_version_asked_for_is_no_version(kind: str, version: str) -> None:
    """Whatever a scraper writes, it gets a page."""
    pages = Pages(Snapshot, LIMITS, lambda: 1000.0)

    status, text, content_type = pages.answer("/metrics", f"{kind}; version={version}, */*;q=0.1")

    assert (status, content_type) == (HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8")
    assert b"inference_worker_ready" in text

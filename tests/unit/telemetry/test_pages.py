"""The answers to probes, and the pages as values. The server itself is tested over a socket elsewhere.

A client of another project reads `/v2` in `tests/contract`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from http import HTTPStatus

import pytest

from tests.unit.codecs.builders import model
from tests.unit.test_settings import LEAST
from worker.core.tensors.specs import TensorSpec
from worker.settings import load
from worker.telemetry import metrics
from worker.telemetry.metrics import Snapshot
from worker.telemetry.pages import Pages

PAGELESS = load(None, LEAST | {"WORKER_TELEMETRY__PAGE": "false"})
REPLICAS = load(None, LEAST | {"WORKER_TELEMETRY__REPLICAS": "http://Worker.example.com:80/"})
SHA256 = "3f9a2b1c" * 8
MODEL = replace(model(TensorSpec("ids", "INT64", (None,)), TensorSpec("image", "FP32", (3, 8))), sha256=SHA256)
READY = Snapshot(unready=None, turned_at=999.0, served=MODEL)


@pytest.mark.parametrize(
    ("path", "snapshot", "status", "body"),
    [
        ("/healthz", Snapshot(turned_at=999.0), HTTPStatus.OK, b"ok\n"),
        ("/v2/health/live", Snapshot(), HTTPStatus.OK, b"ok\n"),
        ("/v2/health/ready", Snapshot(unready=None), HTTPStatus.OK, b"ok\n"),
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
    """It is one line, which an operator reads in the pod's events."""
    assert Pages(lambda: snapshot, PAGELESS).answer(path)[:2] == (status, body)


@pytest.mark.parametrize("path", ["/", "/status", "/page.js", "/v2", "/v2/models/digits", "/config"])
@pytest.mark.parametrize("host", ["evil.example", "EVIL.example:8080", "evil.example.", "127.0.0.1.nip.io", "a.b:1:2"])
def test_a_name_that_anyone_may_own_is_refused(path: str, host: str) -> None:
    """Its owner may have a page there, and later let the name lead here. The answer says what to do."""
    status, body, _ = Pages(Snapshot, REPLICAS).answer(path, host)

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
    pages = Pages(Snapshot, REPLICAS)

    assert pages.answer("/status", host)[0] == HTTPStatus.OK


@pytest.mark.parametrize("path", ["/healthz", "/startupz?x", "/readyz", "/metrics", "/v2/health/ready"])
def test_probes_and_scrapers_ask_by_any_name(path: str) -> None:
    """A balancer or a node may have such a name: a refusal would take the worker out of service."""
    answer = Pages(lambda: Snapshot(unready=None), PAGELESS).answer(path, "node-1.example.com:8080")

    assert answer[0] == HTTPStatus.OK


@pytest.mark.parametrize("path", ["/page.py", "/status.py", "/../pages.py", "/index.html", "//", "/page.css/"])
def test_no_other_file_is_served(path: str) -> None:
    """The page's files are named one by one."""
    pages = Pages(Snapshot, REPLICAS)

    assert pages.answer(path)[:2] == (HTTPStatus.NOT_FOUND, b"/ /healthz /readyz /startupz /metrics /v2\n")


@pytest.mark.parametrize("path", ["/v2/models/m", "/v2/models/m/versions/1", "/v2/models/%6D?x"])
def test_a_model_is_told_with_its_tensors(path: str) -> None:
    """The row axis comes first; -1 marks axes that requests choose. The answer also tells the file's digest."""
    status, body, content_type = Pages(lambda: READY, PAGELESS).answer(path)

    assert (status, content_type) == (HTTPStatus.OK, "application/json")
    assert json.loads(body) == {
        "name": "m",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "ids", "datatype": "INT64", "shape": [-1, -1]},
            {"name": "image", "datatype": "FP32", "shape": [-1, 3, 8]},
        ],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
        "parameters": {"sha256": SHA256},
    }


def test_the_platform_of_a_model_in_python_is_told() -> None:
    """It follows from the device that the model was warmed up on."""
    ready = replace(READY, numbers={metrics.MODEL: {("m", "1", "abc", "python"): 1.0}})

    assert json.loads(Pages(lambda: ready, PAGELESS).answer("/v2/models/m")[1])["platform"] == "python"


@pytest.mark.parametrize(
    ("path", "snapshot", "status", "said"),
    [
        ("/v2", READY, 200, "inference-worker"),
        ("/v2/models/m/ready", READY, 200, "true"),
        ("/v2/models/m/versions/1/ready", Snapshot(served=MODEL), 503, "false"),
        ("/v2/models/m", Snapshot(), 503, "not loaded yet"),
        *(
            (f"/v2/models/{path}", READY, 404, "/v2/models/m/versions/1")
            for path in ("other", "m/infer", "m/versions/2")
        ),
    ],
)
def test_the_paths_of_the_model_s_protocol(path: str, snapshot: Snapshot, status: int, said: str) -> None:
    """A probe reads the status, people read the object. A wrong name gets the right one as answer."""
    answer = Pages(lambda: snapshot, PAGELESS).answer(path)

    assert answer[0] == status
    assert said in answer[1].decode()

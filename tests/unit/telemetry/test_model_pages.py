"""The answers beneath `/v2`, as values. Another client than ours reads it in `tests/contract`."""

from __future__ import annotations

import json
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest

from tests.unit.codecs.builders import model
from worker.core.tensors.specs import TensorSpec
from worker.telemetry.health import Pages
from worker.telemetry.metrics import Snapshot
from worker.telemetry.watchdog import TimeLimits
from worker.version import VERSION

SHA256 = "3f9a2b1c" * 8
MODEL = replace(model(TensorSpec("ids", "INT64", (None,)), TensorSpec("image", "FP32", (3, 8))), sha256=SHA256)
READY = Snapshot(unready=None, turned_at=999.0, served=MODEL)
LIMITS = TimeLimits(turn=60.0, run=30.0, stop=20.0)


def answered(path: str, snapshot: Snapshot = READY) -> tuple[HTTPStatus, Any]:
    status, body, content_type = Pages(lambda: snapshot, LIMITS, lambda: 1000.0).answer(path, "")
    assert content_type == "application/json"
    return status, json.loads(body)


@pytest.mark.parametrize("path", ["/v2/models/m", "/v2/models/m/versions/1", "/v2/models/%6D?x"])
def test_a_model_is_told_with_its_tensors(path: str) -> None:
    """The rows first; -1 is what requests choose. And which file it is."""
    assert answered(path) == (
        HTTPStatus.OK,
        {
            "name": "m",
            "versions": ["1"],
            "platform": "onnxruntime_onnx",
            "inputs": [
                {"name": "ids", "datatype": "INT64", "shape": [-1, -1]},
                {"name": "image", "datatype": "FP32", "shape": [-1, 3, 8]},
            ],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
            "parameters": {"sha256": SHA256},
        },
    )


@pytest.mark.parametrize(
    ("path", "snapshot", "status", "said"),
    [
        ("/v2", READY, 200, {"name": "inference-worker", "version": VERSION, "extensions": []}),
        ("/v2/models/m/ready", READY, 200, {"name": "m", "ready": True}),
        ("/v2/models/m/versions/1/ready", Snapshot(served=MODEL), 503, {"name": "m", "ready": False}),
        ("/v2/models/m", Snapshot(), 503, {"error": "the model is not loaded yet"}),
    ],
)
def test_a_probe_reads_the_status(path: str, snapshot: Snapshot, status: int, said: dict[str, object]) -> None:
    """And people the object."""
    assert answered(path, snapshot) == (status, said)


@pytest.mark.parametrize("path", ["/v2/models/other", "/v2/models/m/versions/2", "/v2/models/m/versions/"])
def test_another_model_is_not_there_and_the_right_one_is_named(path: str) -> None:
    """By its path."""
    status, said = answered(path)

    assert status == HTTPStatus.NOT_FOUND
    assert said["error"].endswith("/v2/models/m/versions/1 is")


@pytest.mark.parametrize("path", ["/v2/models/m/infer", "/v2/models/m/versions/1/config", "/v2/models/m/versions"])
def test_requests_come_over_kafka(path: str) -> None:
    """So there is no `infer`."""
    status, said = answered(path)

    assert status == HTTPStatus.NOT_FOUND
    assert "requests come over Kafka" in said["error"]

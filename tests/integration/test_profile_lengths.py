"""`inference-worker profile --lengths-from`: lengths of requests that lie in a topic of a mock broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import models
from worker import cli
from worker.tools.kafka.embedded import EmbeddedBroker


def request(length: int, rows: int = 1) -> dict[str, object]:
    """As JSON: so many tokens in each row."""
    tensor = {"shape": [rows, length], "datatype": "INT64", "data": [1] * (length * rows)}
    return {"inputs": [{"name": "ids", **tensor}, {"name": "mask", **tensor}]}


def test_requests_in_a_topic_are_a_sample_of_lengths(tmp_path: Path) -> None:
    """Every row of each, read as its headers say; what is no request is counted, with the reason."""
    model = models.save(models.bag_of_words(), tmp_path)
    lines = [request(length) for length in (5, 12, 40) * 4] + [request(3, rows=5), {"value": "free text"}]
    file = tmp_path / "requests.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    with EmbeddedBroker() as broker:
        broker.create_topic("requests")
        environ = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers, "WORKER_MODEL__DEVICE": "cpu"}
        published = CliRunner().invoke(cli.app, ["publish", str(file), "--topic", "requests"], env=environ)
        assert published.exit_code == 0, published.output

        words = ["profile", str(model), "--lengths-from", "requests", "--batch-sizes", "1", "--seconds", "0.02"]
        result = CliRunner().invoke(cli.app, [*words, "--json"], env=environ)

    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["lengths"]
    assert found["sample"] == {
        "source": "requests", "rows": 17, "mean": pytest.approx((4 * 57 + 15) / 17), "longest": 40, "refused": 1
    }  # fmt: skip
    assert found["axis"] == "ids:1"

"""`inference-worker profile`: its measurements, its output, and its refusals."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests import models
from worker import cli
from worker.tools.options import ProfileOrder
from worker.tools.profile.command import sizes_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small real model."""
    return models.save(models.mlp(), tmp_path, "small")


def profile(*arguments: object, columns: int = 80, given: str | None = None) -> Result:
    words = ["profile", *map(str, arguments), "--seconds", "0.02"]
    environ = {"COLUMNS": str(columns), "WORKER_MODEL__DEVICE": "cpu"}
    return CliRunner().invoke(cli.app, words, env=environ, input=given)


def found(*arguments: object, given: str | None = None) -> dict[str, Any]:
    """The JSON document that it prints."""
    result = profile(*arguments, "--json", given=given)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize("columns", [80, 160])
def test_the_page_tells_each_size_the_limit_and_what_to_set(model: Path, columns: int) -> None:
    """It uses as many columns as there are."""
    result = profile(model, "--batch-sizes", "2,8", "--rate", 10, columns=columns)

    lines = result.stdout.splitlines()
    text = " ".join(result.stdout.split())
    assert result.exit_code == 0, result.output
    assert lines[0] == "Model small, version 1"
    assert max(map(len, lines)) <= columns
    head = next(at for at, line in enumerate(lines) if "rows/s" in line)
    assert [line.split()[0] for line in lines[head + 1 : head + 4]] == ["1", "2", "8"]
    assert "A request as json (" in text
    assert " is your limit" in text
    assert "Leave LINGER_MS=auto" in text
    assert "Replicas: 1, " in text
    assert "    WORKER_BATCHING__MAX_BATCH_SIZE=" in result.stdout


def test_json_has_all_of_it(model: Path) -> None:
    """The members are a contract."""
    document = found(model, "--batch-sizes", "1,4", "--latency-budget-ms", 2000, "--encoding", "rows")

    assert set(document) == {
        "model", "open_axes", "sizes", "too_large", "lengths", "refusal", "advice"
    }  # fmt: skip
    assert (document["model"]["name"], document["model"]["device"]) == ("small", "cpu")
    assert [size["rows"] for size in document["sizes"]] == [1, 4]
    assert set(document["sizes"][0]) == {"rows", "inferences", "rows_per_s", "p50", "p99", "stack", "split"}
    advice = document["advice"]
    assert set(advice) == {"batch", "settings", "limit", "request", "replicas", "capacities"}
    assert (advice["request"]["encoding"], advice["request"]["size"], advice["replicas"]) == ("rows", 16, None)
    assert advice["settings"]["WORKER_BATCHING__LATENCY_BUDGET_MS"] == 1992
    assert [capacity["rows"] for capacity in advice["capacities"]] == [1, 4]
    assert set(advice["capacities"][0]) == {"rows", "model", "loop", "latency", "requests_per_s"}


def test_buckets_are_advised_for_a_sample_of_lengths(tmp_path: Path) -> None:
    """The model is measured at the mean padded length; the line to set can be copied into a shell."""
    path = models.save(models.sequence_mean(), tmp_path, "texts")
    lengths = "".join(f"{length}\n" for length in [4, 9, 16, 31, 64] * 20)

    document = found(path, "--lengths", "-", "--batch-sizes", "4", given=lengths)
    page = profile(path, "--lengths", "-", "--batch-sizes", "4", given=lengths).stdout

    sample = document["lengths"]["sample"]
    assert (sample["rows"], sample["longest"]) == (100, 64)
    assert document["lengths"]["waste"]["after"] < document["lengths"]["waste"]["before"]
    value = document["lengths"]["settings"]["WORKER_BATCHING__BUCKETS"]
    assert next(iter(json.loads(value).values()))["boundaries"] == [16, 32, 64]
    assert f"{document['lengths']['axis']} is {document['lengths']['mean_padded']} long, as rows are on average" in page
    (line,) = [line for line in page.splitlines() if "WORKER_BATCHING__BUCKETS=" in line]
    assert shlex.split(line) == [f"WORKER_BATCHING__BUCKETS={value}"]


def test_a_budget_that_cannot_be_met_is_refused_with_the_least(model: Path) -> None:
    """The exit code is 2; the measurements are shown all the same."""
    result = profile(model, "--batch-sizes", "1,4", "--latency-budget-ms", 3, "--json")

    document = json.loads(result.stdout)
    assert result.exit_code == 2
    assert "--latency-budget-ms 3 cannot be met: the least is " in result.stderr
    assert document["advice"] is None
    assert document["refusal"] in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--batch-sizes", "1,x"], "--batch-sizes 1,x: expected row counts, comma-separated, such as 1,8,64"),
        (["--batch-sizes", "0"], "--batch-sizes 0: expected 1, the rows of one request, to 65536"),
        (["--bucket-axis", "x:1"], "--bucket-axis does nothing without --lengths"),
    ],
)
def test_orders_that_cannot_be_carried_out_are_refused_before_anything_is_measured(
    model: Path, arguments: list[object], told: str
) -> None:
    """The refusal is one sentence."""
    result = profile(model, *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"inference-worker: {told}\n"


def test_an_encoding_that_the_model_has_not_is_refused(tmp_path: Path) -> None:
    """The refusal names the possible encodings."""
    every = models.save(models.every_datatype(), tmp_path)

    refused = profile(every, "--encoding", "rows")

    assert refused.exit_code == 2
    assert "--encoding rows: this model is asked as protobuf or binary" in refused.stderr
    assert [size["rows"] for size in found(every, "--batch-sizes", "4", "--encoding", "binary")["sizes"]] == [1, 4]


@pytest.mark.parametrize(("setting", "value", "most"), [("MAX_BATCH_BYTES", "1024", 64), ("MAX_BATCH_TOKENS", "32", 8)])
def test_a_batch_that_would_close_earlier_is_left_out(
    model: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, most: int
) -> None:
    """A row of the model has 16 bytes and 4 elements. A request that would be cut in pieces is not measured."""
    monkeypatch.setenv(f"WORKER_BATCHING__{setting}", value)

    document = found(model, "--batch-sizes", f"{most},{most + 1}")
    refused = profile(model, "--rows-per-request", most + 1, "--batch-sizes", most + 1)

    reason = f"WORKER_BATCHING__{setting} closes a batch at {most} rows"
    assert document["too_large"] == {"rows": most + 1, "reason": reason}
    assert f"--rows-per-request {most + 1}: {reason}; give so many or less" in refused.stderr


@pytest.mark.parametrize(
    ("rows_per_request", "sizes"),
    [(1, [1 << n for n in range(11)]), (100, [100, 200, 400, 800]), (65_536, [65_536])],
)
def test_sizes_double_from_one_request(rows_per_request: int, sizes: list[int]) -> None:
    """They go up to 1,024 rows, or eight requests, within the settings."""
    assert sizes_of(ProfileOrder(rows_per_request=rows_per_request)) == sizes

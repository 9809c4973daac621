"""`inference-worker profile`: what it measures, draws, prints, and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests import models
from worker import cli
from worker.tools.profile.command import sizes_of
from worker.tools.profile.options import ProfileOrder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small real model."""
    return models.save(models.mlp(), tmp_path, "small")


def profile(*arguments: object, columns: int = 80) -> Result:
    words = ["profile", *map(str, arguments), "--seconds", "0.02"]
    return CliRunner().invoke(cli.app, words, env={"COLUMNS": str(columns), "WORKER_MODEL__DEVICE": "cpu"})


def found(*arguments: object) -> dict[str, Any]:
    """What it prints for machines."""
    result = profile(*arguments, "--json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize("columns", [80, 160])
def test_the_table_tells_each_size_and_the_knee(model: Path, columns: int) -> None:
    """Rows/s, a bar and latencies, in as many columns as there are."""
    result = profile(model, "--batch-sizes", "2,8", columns=columns)

    lines = result.stdout.splitlines()
    assert result.exit_code == 0, result.output
    assert lines[0] == "Model small, version 1"
    assert max(map(len, lines)) <= columns
    head = next(at for at, line in enumerate(lines) if "rows/s" in line)
    assert lines[head].split() == ["rows", "rows/s", "gain", *["p50", "ms", "p99", "ms", "stack", "ms", "split", "ms"]]
    assert [line.split()[0] for line in lines[head + 1 : head + 4]] == ["1", "2", "8"]
    assert "█" in lines[head + 3]
    assert "Knee: " in result.stdout
    assert "Advice" not in result.stdout


def test_json_has_all_of_it(model: Path) -> None:
    """The members are a contract."""
    document = found(model, "--batch-sizes", "1,4", "--rate", 10, "--latency-budget-ms", 2000)

    assert set(document) == {
        "model", "open_axes", "sizes", "too_large", "unsteady", "lengths", "knee", "refusal", "advice"
    }  # fmt: skip
    assert document["lengths"] is None
    assert document["open_axes"] == {}
    assert document["model"] | {"path": "", "why": ""} == {
        "name": "small", "version": "1", "path": "", "device": "cpu", "why": "", "threads": 1, "request_rows": 1,
        "seconds": 0.02,
    }  # fmt: skip
    assert [size["rows"] for size in document["sizes"]] == [1, 4]
    assert set(document["sizes"][0]) == {"rows", "inferences", "rows_per_s", "inference_ms", "stack_ms", "split_ms"}
    assert document["sizes"][0]["inference_ms"]["p50"] <= document["sizes"][0]["inference_ms"]["p99"]
    assert set(document["knee"]) == {"rows", "rows_per_s", "share", "gain", "is_last"}
    assert document["too_large"] is None
    advice = document["advice"]
    assert advice["settings"] == {"WORKER_BATCHING__MAX_BATCH_SIZE": 1}
    assert (advice["rate"], advice["latency_budget_ms"]) == (10.0, 2000.0)
    assert (advice["batch"], advice["replicas"], advice["roomier"]) == (False, 1, None)
    assert set(advice["each"]) == {"rate", "latency_ms", "mean_rows", "lane_busy", "load"}
    assert advice["each"]["latency_ms"]["p99"] <= 2000
    assert [capacity["rows"] for capacity in advice["capacities"]] == [1, 4]
    assert set(advice["capacities"][0]) == {"rows", "at_most", "within_budget", "replicas"}
    assert list(advice["assumed"])[:4] == ["guarantee", "transport_ms", "request_cpu_ms", "batch_cpu_ms"]
    assert list(advice["assumed"])[4:] == ["hand_over_ms", "head_room", "budget_filled"]


def test_the_length_of_an_axis_that_the_file_leaves_open_is_told(tmp_path: Path) -> None:
    """It was made up, and the figures hang on it."""
    path = models.save(models.sequence_mean(), tmp_path, "texts")

    (length,) = found(path, "--batch-sizes", "1")["open_axes"].values()

    assert f" is {length} long: the model's file" in " ".join(profile(path, "--batch-sizes", "1").stdout.split())


def test_one_session_that_serves_the_rate_is_told_plainly(model: Path) -> None:
    """Ten requests a second are nothing for a small model."""
    result = profile(model, "--batch-sizes", "1,4", "--rate", 10, "--latency-budget-ms", 2000)

    assert result.exit_code == 0, result.output
    assert "Do not batch: one session already serves your rate within the budget." in result.stdout
    assert "    WORKER_BATCHING__MAX_BATCH_SIZE=1\n" in result.stdout
    assert "within the budget" in result.stdout
    assert "8.0 ms under way in Kafka" in " ".join(result.stdout.split())


def test_the_time_in_kafka_is_yours_if_you_say_so(model: Path) -> None:
    """It is part of every latency that is shown."""
    wanted = ("--batch-sizes", "1", "--rate", 10, "--latency-budget-ms", 2000)

    near, far = (found(model, *wanted, "--transport-ms", ms)["advice"] for ms in (0, 500))

    assert (near["assumed"]["transport_ms"], far["assumed"]["transport_ms"]) == (0.0, 500.0)
    assert near["each"]["latency_ms"]["p50"] < 500 <= far["each"]["latency_ms"]["p50"]
    told = profile(model, *wanted, "--transport-ms", 500).stdout
    assert "500 ms under way in Kafka (as you say)" in " ".join(told.split())


def test_a_rate_that_needs_company_is_advised_to_batch(tmp_path: Path) -> None:
    """A model whose inference costs the same for one row as for sixteen: batches save replicas."""
    spinner = models.save(models.slow_lookup(20), tmp_path)
    one = next(iter(found(spinner, "--batch-sizes", "1")["sizes"]))["rows_per_s"]

    result = profile(spinner, "--batch-sizes", "1,16", "--rate", round(2 * one), "--latency-budget-ms", 5000)

    assert result.exit_code == 0, result.output
    assert "Batch: with up to 16 rows in a batch" in result.stdout
    assert "    WORKER_BATCHING__MAX_BATCH_SIZE=16\n" in result.stdout


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_a_plot_is_drawn(model: Path, tmp_path: Path, name: str, begins: bytes) -> None:
    """Of both kinds, with the model's name, however odd, and the knee."""
    result = profile(model, "--batch-sizes", "1,4", "--plot", tmp_path / name)

    picture = (tmp_path / name).read_bytes()
    assert result.exit_code == 0, result.output
    assert picture.startswith(begins)
    if name.endswith("svg"):
        assert b"small, version 1, on cpu" in picture
        assert b"knee: " in picture


def test_a_budget_that_cannot_be_met_is_refused_with_the_least(model: Path) -> None:
    """Exit code 2; what was measured is shown all the same."""
    result = profile(model, "--batch-sizes", "1,4", "--rate", 10, "--latency-budget-ms", 3)

    assert result.exit_code == 2
    assert "--latency-budget-ms 3 cannot be met: the least is " in result.stderr
    assert "Knee: " in result.stdout


def test_machines_are_told_why_there_is_no_advice(model: Path) -> None:
    """In the document that has what was measured."""
    result = profile(model, "--batch-sizes", "1,4", "--rate", 10, "--latency-budget-ms", 3, "--json")

    document = json.loads(result.stdout)
    assert result.exit_code == 2
    assert document["advice"] is None
    assert "cannot be met: the least is " in document["refusal"]


def test_a_fixed_batch_axis_is_refused_with_the_cure(tmp_path: Path) -> None:
    """There is nothing to sweep: the message says how to export the model."""
    fixed = models.save(models.fixed_batch(), tmp_path)

    result = profile(fixed)

    assert result.exit_code == 2
    assert "the model was exported for a fixed number of rows" in result.stderr
    assert "docs/models.md" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--rate", 5], "--rate and --latency-budget-ms go together: advice needs both"),
        (["--latency-budget-ms", 5], "--rate and --latency-budget-ms go together: advice needs both"),
        (["--batch-sizes", "1,x"], "--batch-sizes 1,x: expected row counts, comma-separated, such as 1,8,64"),
        (["--batch-sizes", "0"], "--batch-sizes 0: 0 is not between 1, the rows of one request, and 65536"),
        (
            ["--batch-sizes", "8", "--rows-per-request", 9],
            "--batch-sizes 8: 8 is not between 9, the rows of one request, and 65536",
        ),
        (["--plot", "a.pdf"], "--plot: a.pdf should end in .png or .svg, which says what is written"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_measured(
    model: Path, arguments: list[object], told: str
) -> None:
    """In one sentence."""
    result = profile(model, *arguments)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"inference-worker: {told}\n"


def test_settings_say_which_model_on_which_device(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's own, unless the command line names another model."""
    monkeypatch.setenv("WORKER_MODEL__PATH", str(model))
    monkeypatch.setenv("WORKER_MODEL__NAME", "mine")
    monkeypatch.setenv("WORKER_MODEL__INTRA_OP_NUM_THREADS", "2")

    document = found("--batch-sizes", "1")

    assert (document["model"]["name"], document["model"]["threads"]) == ("mine", 2)


def test_a_batch_that_would_close_by_bytes_is_left_out(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the model has 16 bytes: 64 rows fill the smallest limit that there is."""
    monkeypatch.setenv("WORKER_BATCHING__MAX_BATCH_BYTES", "1024")

    document = found(model, "--batch-sizes", "64,65,100")

    assert [size["rows"] for size in document["sizes"]] == [1, 64]
    reason = "WORKER_BATCHING__MAX_BATCH_BYTES closes a batch at 64 rows"
    assert document["too_large"] == {"rows": 65, "reason": reason}


def test_a_batch_that_would_close_by_tokens_is_left_out(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the model has 4: no one would ever see the rate of more rows at once."""
    monkeypatch.setenv("WORKER_BATCHING__MAX_BATCH_TOKENS", "32")

    document = found(model, "--batch-sizes", "8,9")
    refused = profile(model, "--rows-per-request", 9, "--batch-sizes", "9")

    assert [size["rows"] for size in document["sizes"]] == [1, 8]
    reason = "WORKER_BATCHING__MAX_BATCH_TOKENS closes a batch at 8 rows"
    assert document["too_large"] == {"rows": 9, "reason": reason}
    assert f"--rows-per-request 9: {reason}; give so many or less, or raise it to 36 or more" in refused.stderr


def test_a_request_larger_than_a_batch_by_bytes_is_not_measured(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker cuts it into pieces: no batch of its rows ever runs."""
    monkeypatch.setenv("WORKER_BATCHING__MAX_BATCH_BYTES", "1024")

    refused = profile(model, "--rows-per-request", 65, "--batch-sizes", "65")

    assert refused.exit_code == 2
    closes = "--rows-per-request 65: WORKER_BATCHING__MAX_BATCH_BYTES closes a batch at 64 rows; give so many or less"
    assert f"{closes}, or raise it to 1040 or more" in refused.stderr


def test_a_model_for_a_fixed_number_of_rows_is_measured_up_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shorter batches are padded and take as long; larger ones it never runs, nor one request of more rows."""
    monkeypatch.setenv("WORKER_MODEL__FIXED_BATCH", "pad")
    fixed = models.save(models.for_rows(8, models.mlp()), tmp_path)

    document = found(fixed, "--batch-sizes", "4,8,9,16")
    refused = profile(fixed, "--rows-per-request", 9)

    assert [size["rows"] for size in document["sizes"]] == [1, 4, 8]
    assert document["too_large"] == {"rows": 9, "reason": "the model was exported for 8 rows"}
    assert refused.exit_code == 2
    assert "--rows-per-request 9: the model was exported for 8 rows; give so many or less" in refused.stderr


def test_models_of_strings_and_of_many_inputs_are_measured(tmp_path: Path) -> None:
    """Whatever the worker can stack."""
    every = models.save(models.every_datatype(), tmp_path)

    assert [size["rows"] for size in found(every, "--batch-sizes", "4")["sizes"]] == [1, 4]


@pytest.mark.parametrize(
    ("rows_per_request", "sizes"),
    [
        (1, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]),
        (100, [100, 200, 400, 800]),
        (1000, [1000, 2000, 4000, 8000]),
        (65_536, [65_536]),
    ],
)
def test_sizes_double_from_one_request(rows_per_request: int, sizes: list[int]) -> None:
    """Up to 1,024 rows, or eight requests, and what the settings allow."""
    assert sizes_of(ProfileOrder(rows_per_request=rows_per_request)) == sizes

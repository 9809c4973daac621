"""`inference-worker init` on a real cluster: its file, the next command that it prints, and a worker that starts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests import models
from tests.kafka.broker import free_port
from tests.kafka.cluster import Cluster, fresh
from worker import cli


def told(*words: str, **environment: str) -> Result:
    """Run a command with these variables and no others of ours."""
    return CliRunner().invoke(cli.app, words, env=environment)


def test_the_file_and_the_next_command_make_a_worker_that_starts(kafka: Cluster, tmp_path: Path) -> None:
    """One topic is there; the printed command makes the others, with as many partitions."""
    requests, answers = kafka.create_topic("requests", partitions=3), fresh("answers")
    model = models.save(models.mlp(4, (8,), 3), tmp_path, "scores")

    topics = ("--requests", requests, "--answers", answers, "--dead-letters", f"{answers}.rejected")
    given = ("--model", str(model), "--bootstrap-servers", kafka.bootstrap_servers, *topics)

    made = told("init", *given, "--config", str(tmp_path / "worker.toml"))

    assert made.exit_code == 0, made.output
    text = (tmp_path / "worker.toml").read_text()
    said = " ".join(made.stdout.split())
    assert "takes x FP32[batch, 4] and gives y FP32[batch, 3]" in said
    assert 'group_id = "scores"' in text
    check, run = (shlex.split(line) for line in made.stdout.splitlines()[-2:])
    assert run == ["inference-worker", "run", "--config", str(tmp_path / "worker.toml")]
    checked = told(*check[1:], "--json")
    assert checked.exit_code == 0, checked.output
    assert json.loads(checked.stdout)["created"] == {answers: 3, f"{answers}.rejected": 3}


@pytest.mark.parametrize(
    ("config", "words", "said"),
    [
        ("worker.toml", [], "which model? `inference-worker init --model model.onnx` names its file"),
        ("worker.toml", ["--model", "absent.onnx"], "absent.onnx"),
        ("there.toml", ["--model", "model.onnx"], "is there already; --force writes over it, --config names another"),
        ("absent/worker.toml", ["--model", "model.onnx"], "cannot be written: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, words: Sequence[str], said: str
) -> None:
    """It needs a model that can be served, and overwrites no file unasked."""
    monkeypatch.chdir(tmp_path)
    models.save(models.mlp(4, (8,), 3), tmp_path)
    (tmp_path / "there.toml").write_text("mine")

    refused = told("init", "--config", config, *words, WORKER_KAFKA__BOOTSTRAP_SERVERS=f"127.0.0.1:{free_port()}")

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert [file.name for file in tmp_path.glob("*.toml")] == ["there.toml"]
    assert (tmp_path / "there.toml").read_text() == "mine"

"""`inference-worker init` on a real cluster: its file, the command that it ends with, and a worker that starts."""

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
from tests.kafka.scene import Scene
from worker import cli
from worker.settings import load


def told(*words: str, **environment: str) -> Result:
    """A command, with these variables and no others of ours."""
    return CliRunner().invoke(cli.app, words, env=environment)


def init(kafka: Cluster, model: Path, folder: Path, *words: str) -> Result:
    """The command, for this model and topics whose names begin with the folder's."""
    brokers = ("--bootstrap-servers", kafka.bootstrap_servers)
    return told("init", "--model", str(model), *brokers, "--config", str(folder / "worker.toml"), *words)


def topics(**words: str) -> Sequence[str]:
    return [word for name, value in words.items() for word in (f"--{name.replace('_', '-')}", value)]


def test_the_file_and_the_next_command_make_a_worker_that_starts(kafka: Cluster, tmp_path: Path) -> None:
    """One topic is there; the others are made by the command that is printed, with as many partitions."""
    requests, answers = kafka.create_topic("requests", partitions=3), fresh("answers")
    model = models.save(models.mlp(4, (8,), 3), tmp_path, "scores")

    made = init(kafka, model, tmp_path, *topics(requests=requests, answers=answers, dead_letters=f"{answers}.rejected"))

    assert made.exit_code == 0, made.output
    text = (tmp_path / "worker.toml").read_text()
    said = " ".join(made.stdout.split())
    assert "takes x FP32[batch, 4] and gives y FP32[batch, 3]" in said
    assert f"{requests} has 3 partitions" in said
    assert f"{answers} is not there yet: `check --create-topics` makes it" in said
    assert 'group_id = "scores"' in text
    check, run = (shlex.split(line) for line in made.stdout.splitlines()[-2:])
    assert run == ["inference-worker", "run", "--config", str(tmp_path / "worker.toml")]
    checked = told(*check[1:], "--json")
    assert checked.exit_code == 0, checked.output
    assert json.loads(checked.stdout)["created"] == {answers: 3, f"{answers}.rejected": 3}


def test_another_group_that_reads_the_topic_is_told(kafka: Cluster, tmp_path: Path) -> None:
    """By `init` and by `check`: nothing would fail, and each request would be answered twice."""
    with Scene(kafka, tmp_path) as scene:
        scene.replica()
        model = models.save(models.mlp(4, (8,), 3), tmp_path, "second")
        names = {name: kafka.create_topic(name) for name in ("answers", "dead_letters")}

        made = init(kafka, model, tmp_path, *topics(requests=scene.topic, **names))
        checked = told("check", "--config", str(tmp_path / "worker.toml"), "--json")

    said = f"group {scene.group} reads {scene.topic} already, and answers each of its requests, too"
    assert said in " ".join(made.stdout.split())
    assert f"group {scene.group} also reads topic {scene.topic}" in checked.stdout


def test_without_a_broker_there_is_a_file_all_the_same(tmp_path: Path) -> None:
    """It says that none answered, and so does the command, with the reason."""
    model, file = models.save(models.mlp(4, (8,), 3), tmp_path), tmp_path / "worker.toml"
    environment = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}", "WORKER_MODEL__PATH": str(model)}

    made = told("init", "--config", str(file), "--set", "BATCHING.LANES=2", **environment)

    assert made.exit_code == 0, made.output
    assert "connection refused" in made.stdout
    settings = load(file, {})
    assert settings.kafka.bootstrap_servers == environment["WORKER_KAFKA__BOOTSTRAP_SERVERS"]
    assert (settings.kafka.request_topics, settings.kafka.response_topic) == (("requests",), "answers")
    assert settings.batching.lanes == 2


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
    """A model that can be served is needed, and no file is written over unasked."""
    monkeypatch.chdir(tmp_path)
    models.save(models.mlp(4, (8,), 3), tmp_path)
    (tmp_path / "there.toml").write_text("mine")

    refused = told("init", "--config", config, *words, WORKER_KAFKA__BOOTSTRAP_SERVERS=f"127.0.0.1:{free_port()}")

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert [file.name for file in tmp_path.glob("*.toml")] == ["there.toml"]
    assert (tmp_path / "there.toml").read_text() == "mine"

"""`inference-worker check` on a real cluster: its report, its questions, and no trace left behind."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from tests import models
from tests.kafka.cluster import TIMEOUT, Cluster, fresh
from worker import cli
from worker.tools.kafka.embedded import EmbeddedBroker


class Deployment:
    """Topics, a model, and the variables of a worker that would serve them."""

    def __init__(self, kafka: Cluster, folder: Path, model: bytes, *, partitions: int = 3) -> None:
        self.requests = kafka.create_topic("requests", partitions=partitions)
        self.answers = kafka.create_topic("answers")
        self.dead = kafka.create_topic("dead")
        self.group = fresh("group")
        self.model = models.save(model, folder)
        self.environment = {
            **environment(kafka.bootstrap_servers, self.model),
            "WORKER_KAFKA__REQUEST_TOPICS": self.requests,
            "WORKER_KAFKA__RESPONSE_TOPIC": self.answers,
            "WORKER_KAFKA__DEAD_LETTER_TOPIC": self.dead,
            "WORKER_KAFKA__GROUP_ID": self.group,
        }


@pytest.fixture
def deployment(kafka: Cluster, tmp_path: Path) -> Deployment:
    return Deployment(kafka, tmp_path, models.mlp(4, (8,), 3))


def check(environment: Mapping[str, str], *options: str) -> Result:
    """Run the command with these variables and no others of ours."""
    return CliRunner().invoke(cli.app, ["check", *options], env=dict(environment))


def test_a_deployment_that_starts_is_told_from_every_side(deployment: Deployment) -> None:
    """Settings, model, cluster, topics, group and an example: exit code 0, no colour in a pipe; then as JSON."""
    result = check({**deployment.environment, "COLUMNS": "80"}, "--example")
    report = json.loads(check(deployment.environment, "--example", "--json").stdout)

    assert result.exit_code == 0, result.output
    for said in (
        f"WORKER_KAFKA__GROUP_ID           {deployment.group}",
        "  x FP32[batch, 4]",
        "group protocol consumer (KIP-848, the broker's own)",
        "replication factor 1",
        '{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[0.0,0.0,0.0,0.0]}]}\n',
    ):
        assert said in result.stdout, result.stdout
    assert result.stdout.splitlines()[-1] == "A worker with these settings starts."
    assert "\x1b" not in result.stdout
    assert max(len(line) for line in result.stdout.splitlines() if not line.startswith("  {")) <= 80
    assert (report["starts"], report["exit_code"], report["problems"]) == (True, 0, [])
    assert report["settings"]["WORKER_BATCHING__MAX_BATCH_SIZE"] == {"value": 32, "is_default": True}
    assert report["cluster"]["group"] == "group protocol consumer (KIP-848, the broker's own)"
    assert report["cluster"][deployment.requests] == (
        "requests: 3 partitions, 1 replica, records of 1,048,588 bytes at most"
    )
    assert report["cluster"].keys() == {"brokers", deployment.requests, deployment.answers, deployment.dead, "group"}


def test_exactly_once_is_told_and_tried(deployment: Deployment) -> None:
    """The report says that transactions work, and under which ids."""
    wanted = {**deployment.environment, "WORKER_DELIVERY__GUARANTEE": "exactly_once"}

    result = check({**wanted, "COLUMNS": "80"})
    report = json.loads(check(wanted, "--json").stdout)

    assert result.exit_code == 0, result.output
    assert report["cluster"]["transactions"] == f"work (tried), as {deployment.group}-*"


def test_topics_that_are_missing_are_made_when_asked_for(kafka: Cluster, tmp_path: Path) -> None:
    """The changelog is compacted, all have as many partitions as the request topic; a second run makes nothing."""
    requests, name = kafka.create_topic("requests", partitions=3), fresh("made")
    model = models.save(models.running_mean(), tmp_path)
    deployment = {
        **environment(kafka.bootstrap_servers, model),
        "WORKER_KAFKA__REQUEST_TOPICS": requests,
        "WORKER_KAFKA__RESPONSE_TOPIC": name,
        "WORKER_KAFKA__GROUP_ID": name,
        "WORKER_STATE__TENSORS": '{"sum_in": "sum_out", "count_in": "count_out"}',
    }
    refused = check(deployment)
    made, again = (check(deployment, "--create-topics", "--json") for _ in range(2))

    assert (refused.exit_code, made.exit_code, again.exit_code) == (2, 0, 0), made.output
    report = json.loads(made.stdout)
    assert report["created"] == {name: 3, f"{name}-state": 3}
    assert "compact" not in "".join(warning["text"] for warning in report["warnings"])
    assert json.loads(again.stdout)["created"] == {}
    assert (kafka.partitions(name), kafka.partitions(f"{name}-state")) == (3, 3)


def test_a_look_shuts_no_replica_out(kafka: Cluster, deployment: Deployment) -> None:
    """A worker with a stable transactional id goes on while `check` runs with its settings."""
    name = f"{deployment.group}-fixed"
    wanted = {**deployment.environment, "WORKER_DELIVERY__GUARANTEE": "exactly_once"}
    serving = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    serving.init_transactions(TIMEOUT)
    serving.begin_transaction()
    serving.produce(deployment.answers, b"v")

    result = check({**wanted, "WORKER_DELIVERY__TRANSACTIONAL_ID": name, "COLUMNS": "80"})

    serving.commit_transaction(TIMEOUT)
    assert result.exit_code == 0, result.output
    assert f"work (tried), as {name}" in result.stdout
    assert "when a replica is killed" not in result.stdout, "its successor has the name, too"


def test_everything_that_is_wrong_is_told_at_once(deployment: Deployment) -> None:
    """A missing model does not hide a missing topic, and the rest is still shown."""
    wrong = {
        **deployment.environment,
        "WORKER_MODEL__PATH": "/nowhere/model.onnx",
        "WORKER_KAFKA__RESPONSE_TOPIC": "nowhere",
    }

    result = check({**wrong, "COLUMNS": "200"})

    assert result.exit_code == 2
    problems = result.stdout.partition("Problems")[2]
    assert "/nowhere/model.onnx: the model cannot be read: No such file" in problems
    assert "there is no topic nowhere; let `inference-worker check --create-topics` make it" in " ".join(
        problems.split()
    )
    assert "not fit to serve: 2 problems, exit code 2." in problems
    assert deployment.requests in result.stdout.partition("Cluster")[2]


def test_nothing_is_left_behind(kafka: Cluster, deployment: Deployment) -> None:
    """No group, no offset, no record."""
    before = kafka.end_offsets(deployment.answers)

    assert check(deployment.environment).exit_code == 0

    groups = kafka.admin.list_consumer_groups(request_timeout=TIMEOUT).result().valid
    assert deployment.group not in [group.group_id for group in groups]
    assert kafka.end_offsets(deployment.answers) == before


# Clusters that are not as they should be


def test_a_broker_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts the connection and says nothing: the wait is bounded, its address is named, the model is told."""
    monkeypatch.setattr("worker.commands.checking.START_TIMEOUT", 1.0)
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"

        result = check(environment(where, models.save(models.mlp(), tmp_path)), "--json")

    report = json.loads(result.stdout)
    (problem,) = report["problems"]
    assert result.exit_code == 2
    assert time.monotonic() - began < 60
    assert problem["text"].startswith(f"WORKER_KAFKA__BOOTSTRAP_SERVERS: no broker at {where} answers within 1 s: ")
    assert report["model"]["takes"] == "x FP32[batch, 4]"


def test_the_mock_cluster_is_looked_at_as_far_as_it_answers(tmp_path: Path) -> None:
    """It tells no limits, groups and controllers, and `check` does not wait for them."""
    with EmbeddedBroker() as broker:
        broker.create_topic("requests")
        broker.create_topic("answers")

        result = check(environment(broker.bootstrap_servers, models.save(models.mlp(), tmp_path)))

        settings = environment(broker.bootstrap_servers, models.save(models.mlp(), tmp_path))
        once = check({**settings, "WORKER_DELIVERY__GUARANTEE": "exactly_once"}, "--json")

    assert result.exit_code == 0, result.stdout
    assert "a mock of librdkafka's" in result.stdout
    (problem,) = json.loads(once.stdout)["problems"]
    assert once.exit_code == 2
    assert problem["text"].startswith("WORKER_DELIVERY__GUARANTEE: exactly_once does not hold on this cluster: ")


def environment(bootstrap_servers: str, model: Path) -> dict[str, str]:
    """The variables of a worker on topics with made-up names."""
    return {
        "WORKER_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
        "WORKER_KAFKA__REQUEST_TOPICS": "requests",
        "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
        "WORKER_KAFKA__GROUP_ID": "g",
        "WORKER_MODEL__PATH": str(model),
        "WORKER_MODEL__DEVICE": "cpu",
    }

"""`bench` on a real Kafka: it measures, can be stopped, and leaves the cluster as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.kafka.cluster import TIMEOUT, Cluster, Sent, fresh
from tests.models import mlp, save
from worker import cli


def topics(cluster: Cluster, prefix: str) -> list[str]:
    """The topics whose names begin with `prefix`."""
    return [name for name in cluster.admin.list_topics(timeout=TIMEOUT).topics if name.startswith(prefix)]


def groups(cluster: Cluster, prefix: str) -> list[str]:
    """The groups whose names begin with `prefix`."""
    listed = cluster.admin.list_consumer_groups(request_timeout=TIMEOUT).result(TIMEOUT).valid
    return [group.group_id for group in listed if group.group_id.startswith(prefix)]


def environment(cluster: Cluster, model: Path, requests: str) -> dict[str, str]:
    """A user's environment with a worker's settings."""
    return {
        "WORKER_KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "WORKER_KAFKA__REQUEST_TOPICS": requests,
        "WORKER_KAFKA__RESPONSE_TOPIC": f"{requests}-answers",
        "WORKER_KAFKA__DEAD_LETTER_TOPIC": f"{requests}-letters",
        "WORKER_KAFKA__GROUP_ID": f"{requests}-group",
        "WORKER_DELIVERY__GUARANTEE": "exactly_once",
        "WORKER_MODEL__PATH": str(model),
    }


@pytest.mark.slow
def test_it_measures_and_leaves_nothing_behind(kafka: Cluster, tmp_path: Path) -> None:
    """Its own topics and groups are gone; the user's are unchanged."""
    model, requests, prefix = save(mlp(), tmp_path), kafka.create_topic("orders"), fresh("measured")
    kafka.produce(requests, [Sent(b"k", b"not for bench")])
    asked = ["bench", "--seconds", "0.5", "--rate", "50", "--prefix", prefix, "--json"]

    run = CliRunner().invoke(cli.app, asked, env=environment(kafka, model, requests))

    assert run.exit_code == 0, run.output
    for each in json.loads(run.stdout)["contenders"]:
        assert each["maximum"]["requests_per_second"] > 0
        assert each["maximum"]["unanswered"] == 0
        assert not each["errors"]
    assert topics(kafka, prefix) == []
    assert groups(kafka, prefix) == []
    assert len(kafka.read_all(requests)) == 1
    assert kafka.committed(f"{requests}-group", requests) == {}


def test_a_run_that_is_stopped_deletes_its_topics(kafka: Cluster, tmp_path: Path) -> None:
    """It also deletes the topics of its current turn."""
    model, prefix = save(mlp(), tmp_path), fresh("stopped")
    command = [sys.executable, "-m", "worker", "bench", "--seconds", "60", "--prefix", prefix]
    environ = {**os.environ, **environment(kafka, model, "orders")}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
        deadline = time.monotonic() + TIMEOUT
        while not topics(kafka, prefix):
            assert bench.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(2.0)
        bench.send_signal(signal.SIGTERM)
        _, errors = bench.communicate(timeout=TIMEOUT)

    assert bench.returncode == 7, errors
    assert b"Traceback" not in errors
    deadline = time.monotonic() + TIMEOUT
    while topics(kafka, prefix):  # the controller has deleted them; the broker hears of it later
        assert time.monotonic() < deadline
        time.sleep(0.1)

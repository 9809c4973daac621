"""`records infer` on a real cluster proposes settings with which a worker answers the topic's records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from tests.kafka.cluster import TIMEOUT, Cluster, fresh
from tests.kafka.replica import PASSED_ON
from tests.models import model, save
from worker import cli

DOUBLE = model("float[batch, 1] amount => float[batch, 1] double", "double = Add(amount, amount)")


def told(*words: str) -> Result:
    return CliRunner().invoke(cli.app, words, env={"WORKER_MODEL__DEVICE": "cpu"})


def test_the_inferred_settings_serve_the_topic(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Aborted records and the markers of transactions are no part of the sample."""
    monkeypatch.chdir(tmp_path)
    save(DOUBLE, tmp_path)
    payments, answers = kafka.create_topic("payments", partitions=2), kafka.create_topic("answers")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": fresh("publisher")})
    producer.init_transactions(TIMEOUT)
    for amount in range(5):
        producer.begin_transaction()
        producer.produce(payments, json.dumps({"payment_id": amount, "amount": amount}), b"key")
        producer.commit_transaction(TIMEOUT)
    producer.begin_transaction()
    producer.produce(payments, b'{"amount": "aborted"}', b"key")
    producer.flush(TIMEOUT)
    producer.abort_transaction(TIMEOUT)

    brokers = ("--bootstrap-servers", kafka.bootstrap_servers)
    inferred = told("records", "infer", "--model", "model.onnx", "--topic", payments, *brokers, "-o", "worker.toml")
    own = ("--answers", answers, "--dead-letters", kafka.create_topic("dead"), "--group", fresh("group"))
    checked = told("check", "--config", "worker.toml", *own, "--json")

    assert inferred.exit_code == 0, inferred.output
    report = json.loads(checked.stdout)
    assert checked.exit_code == 0, report["problems"]
    assert report["records"][payments] == "5 newest records tried: 5 answered, 0 refused"
    words = [sys.executable, "-m", "worker", "run", "--config", "worker.toml", *own]
    environment = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
    with subprocess.Popen(words, env={**environment, "WORKER_MODEL__DEVICE": "cpu"}) as worker:
        try:
            values = [json.loads(answer.value or b"") for answer in kafka.read(answers, 5, TIMEOUT)]
        finally:
            worker.send_signal(signal.SIGTERM)
    assert values == [{"payment_id": amount, "double": 2.0 * amount} for amount in range(5)]

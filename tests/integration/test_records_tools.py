"""`records infer`, `init` and `check` on a topic of records of a mock broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from tests.models import model, save
from worker import cli
from worker.tools.kafka.embedded import EmbeddedBroker

Command = Callable[..., Result]

SUM = model(
    "float[batch, 2] features, string[batch, 1] country => float[batch, 2] y, string[batch, 1] same",
    "y = Add(features, features)\nsame = Identity(country)",
)
TOPICS = ("payments", "answers", "rejected")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        for topic in TOPICS:
            broker.create_topic(topic)
        yield broker


@pytest.fixture
def command(broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in a folder with the model."""
    monkeypatch.chdir(tmp_path)
    save(SUM, tmp_path)
    environment = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers, "WORKER_MODEL__DEVICE": "cpu"}
    return lambda *words: CliRunner().invoke(cli.app, list(words), env=environment)


def publish(broker: EmbeddedBroker, records: Sequence[object]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for record in records:
        producer.produce("payments", json.dumps(record), b"key")
    assert producer.flush(20) == 0


def payments(count: int) -> list[dict[str, object]]:
    return [{"payment_id": str(at), "amount": at, "at": {"country": "NL", "age": 3}} for at in range(count)]


def test_a_topic_s_newest_records_make_settings_that_serve_them(broker: EmbeddedBroker, command: Command) -> None:
    """`check` finds the same fields, and answers for the newest records; nothing was committed or published."""
    publish(broker, payments(150))

    inferred = command("records", "infer", "--model", "model.onnx", "--topic", "payments", "-o", "worker.toml")
    checked = command("check", "--config", "worker.toml", "--json", "--example")

    assert inferred.exit_code == 0, inferred.output
    assert "# Proposed from 100 records" in Path("worker.toml").read_text()
    assert "amount 149" in inferred.stdout
    report = json.loads(checked.stdout)
    assert checked.exit_code == 0, report["problems"]
    assert report["records"] == {
        "features": "FP32[batch, 2] from amount, at.age",
        "country": "BYTES[batch, 1] from at.country",
        "answer": "y FP32[batch, 2], same BYTES[batch], with payment_id",
        "payments": "10 newest records tried: 10 answered, 0 refused",
    }
    assert report["example"]["record"]["headers"] == {}


def test_init_writes_the_mapping_of_a_topic(broker: EmbeddedBroker, command: Command) -> None:
    """The topic becomes the one to read."""
    publish(broker, payments(5))

    result = command("init", "--model", "model.onnx", "--topic", "payments")

    assert result.exit_code == 0, result.output
    text = Path("worker.toml").read_text()
    assert 'request_topics = ["payments"]' in text
    assert 'features = ["amount", "at.age"]' in text


def test_check_counts_the_reasons_of_records_without_an_answer(broker: EmbeddedBroker, command: Command) -> None:
    """With no answer at all it ends as for wrong settings."""
    publish(broker, payments(5))
    assert command("init", "--model", "model.onnx", "--topic", "payments").exit_code == 0
    wrong = [{**record, "amount": "much"} for record in payments(10)]

    publish(broker, wrong[:3])
    some = json.loads(command("check", "--config", "worker.toml", "--json").stdout)
    publish(broker, wrong)
    none = command("check", "--config", "worker.toml", "--json")

    assert any(
        warning["text"].startswith("payments: 3 of the 8 newest records would get an error: amount: expected a number")
        for warning in some["warnings"]
    )
    assert some["exit_code"] == 0
    assert none.exit_code == 2
    assert "10 of the 10 newest records would get an error" in json.loads(none.stdout)["problems"][0]["text"]


def test_framed_records_need_a_registry(broker: EmbeddedBroker, command: Command) -> None:
    """The setting that names it is told."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("payments", b"\0\0\0\0\7body")
    assert producer.flush(20) == 0

    result = command("records", "infer", "--model", "model.onnx", "--topic", "payments")

    assert result.exit_code == 2
    assert "WORKER_REGISTRY__URL" in result.stderr

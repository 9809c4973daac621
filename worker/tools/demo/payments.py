"""The demo's topic of payments: JSON objects as a shop writes them, answered by a model of fraud.

The settings say which field feeds which input of the model, and which fields the answer has. `payments_model.py` made
the model.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from worker.core.failures import DeadlineMissed
from worker.kafka.reader import Reader
from worker.settings import Connection
from worker.tools.kafka.embedded import CLIENT_CONFIG, EmbeddedBroker
from worker.tools.kafka.publisher import Publisher
from worker.tools.processes import Replica

MODEL = Path(__file__).with_name("payments.onnx")
RECORDS = """\
[records.inputs]
features = ["amount", "customer.age_days", "hour"]
country = "customer.country"
[records.answer]
keep = ["id"]
score = "probabilities[1]"
label = { argmax = "probabilities", names = ["ok", "fraud"] }
"""
Payment = Mapping[str, Any]
PAYMENTS: tuple[Payment, ...] = (
    {"id": 1, "amount": 12.5, "hour": 14, "customer": {"country": "NL", "age_days": 812}},
    {"id": 2, "amount": 950, "hour": 3, "customer": {"country": "NG", "age_days": 4}},
    {"id": 3, "amount": 230, "hour": 2, "customer": {"country": "US", "age_days": 400}},
)
WRONG: Payment = {"id": 4, "amount": "12.50", "hour": 9, "customer": {"country": "DE", "age_days": 90}}
_TOPIC, _ANSWERS = "payments", "scores"


class Scored(NamedTuple):
    """A payment and its answer, each as the text of its value."""

    payment: str
    answer: str


def scored(patience: float) -> list[Scored]:
    """Publishes the payments, the wrong one last, to a worker with these settings, and returns their answers.

    Raises `Stop` if the worker fails, or has not answered after `patience` seconds.
    """
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as folder:
        for topic in (_TOPIC, _ANSWERS):
            broker.create_topic(topic)
        file = Path(folder, "worker.toml")
        file.write_text(RECORDS)
        settings = {
            "KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "KAFKA__REQUEST_TOPICS": _TOPIC,
            "KAFKA__RESPONSE_TOPIC": _ANSWERS,
            "KAFKA__GROUP_ID": _TOPIC,
            "KAFKA__CONFIG": json.dumps(CLIENT_CONFIG),
            "MODEL__PATH": str(MODEL),
            "MODEL__DEVICE": "cpu",
        }
        kafka = Connection(bootstrap_servers=broker.bootstrap_servers, config=CLIENT_CONFIG)
        with Replica(settings, os.environ, config=file) as worker, Reader(kafka, _ANSWERS) as reader:
            worker.wait_until_ready()
            reader.start_at(reader.ends)
            return _answered(worker, reader, Publisher(kafka, _TOPIC), patience)


def _answered(worker: Replica, reader: Reader, publisher: Publisher, patience: float) -> list[Scored]:
    by_key = {str(each["id"]).encode(): json.dumps(each, separators=(",", ":")) for each in (*PAYMENTS, WRONG)}
    for key, payment in by_key.items():
        publisher.publish(payment.encode(), key, ())
    publisher.flush(patience)
    found: dict[bytes | None, str] = {}
    deadline = time.monotonic() + patience
    while len(found) < len(by_key):
        worker.check()
        if time.monotonic() > deadline:
            raise DeadlineMissed(f"{len(found)} of {len(by_key)} payments were answered within {patience:g} s")
        found |= {record.key: (record.value or b"").decode() for record in reader.read(0.1)}
    return [Scored(payment, found[key]) for key, payment in by_key.items()]

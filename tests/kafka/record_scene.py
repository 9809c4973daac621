"""The stage of a record topic: JSON records, a model of which the right answers are known, and a judge of its own.

Nothing here imports `worker`: a mistake there must not hide here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Message, TopicPartition

from tests.kafka.checker import Answer
from tests.kafka.cluster import MORTAL, TIMEOUT, Cluster, Sent
from tests.kafka.publisher import Acknowledged, Position
from tests.kafka.scene import Scene
from tests.models import model

Record = Mapping[str, Any]
TOLERANCE = 1e-6  # batched and single results differ in the last bits
WEIGHTS = np.array([[0.5, -1.0], [-0.25, 0.75], [2.0, 0.125]], np.float32)
LABELS = ("ok", "fraud")
MAPPING: Mapping[str, Any] = {
    "inputs": {"features": ["amount", "age", "customer.score"], "country": "customer.country"},
    "answer": {
        "keep": ["id"],
        "score": "probabilities[1]",
        "label": {"argmax": "probabilities", "names": list(LABELS)},
        "country": "country_out",
    },
}


def payments() -> bytes:
    """Makes the model: features FP32 (batch, 3), country (batch) → probabilities FP32 (batch, 2), country_out."""
    return model(
        "float[batch, 3] features, string[batch] country => float[batch, 2] probabilities, string[batch] country_out",
        "logits = MatMul(features, w) probabilities = Softmax<axis = 1>(logits) country_out = Identity(country)",
        {"w": WEIGHTS},
    )


def settings_of(**tables: Any) -> dict[str, str]:
    """The settings of these entries of `[records]`."""
    return {f"RECORDS__{name.upper()}": _written(entry) for name, entry in tables.items()}


def _written(entry: Any) -> str:
    return entry if isinstance(entry, str) else json.dumps(entry)


def payment(number: int, **changes: Any) -> dict[str, Any]:
    """The n-th payment, with these changes."""
    return {
        "id": number,
        "amount": number % 7 / 4,
        "customer": {"score": number % 5 / 8, "country": ("NL", "DE", "ÖS")[number % 3]},
        "age": number % 11,
        "note": f"number {number}",
        **changes,
    }


def sent(record: Record | bytes | str, key: bytes | None = b"k", partition: int = -1, **headers: str) -> Sent:
    """A record to send, in JSON unless it is bytes."""
    value = record if isinstance(record, bytes) else record.encode() if isinstance(record, str) else as_json(record)
    return Sent(key, value, [(name.replace("_", "-"), text.encode()) for name, text in headers.items()], partition)


def as_json(record: Record) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode()


def right_answer(record: Record) -> dict[str, Any]:
    """The answer to a payment, as numpy computes it."""
    customer = record["customer"]
    logits = np.array([record["amount"], record["age"], customer["score"]], np.float32) @ WEIGHTS
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    return {
        "id": record["id"],
        "score": float(shares[1]),
        "label": LABELS[int(shares.argmax())],
        "country": customer["country"],
    }


def expect_answer(found: Answer, right: Mapping[str, Any]) -> None:
    """Fail the test unless this answer has these fields in this order, and numbers within the tolerance."""
    assert not found.is_error, (found, right)
    assert found.headers["content-type"] == "application/json", found
    fields = json.loads(found.value or b"")
    assert list(fields) == list(right), (found, right)
    for name, value in right.items():
        if isinstance(value, float) or (isinstance(value, list) and value and isinstance(value[0], float)):
            np.testing.assert_allclose(fields[name], value, TOLERANCE, TOLERANCE, err_msg=str(found))
        else:
            assert fields[name] == value, (found, right)


def expect_error(found: Answer, code: str, *words: str) -> None:
    """Fail the test unless this answer is an error of this code, whose message has these words."""
    assert found.headers.get("error-code") == code, found
    said = json.loads(found.value or b"")["error"]
    assert all(word in said for word in words), (said, words)


class RecordScene(Scene):
    """A scene of payments. `is_owed` says which records get an answer; the others are passed over."""

    def __init__(
        self,
        kafka: Cluster,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        guarantee: str = "at_least_once",
        model: bytes | None = None,
        partitions: int = 4,
        session: float = MORTAL,
        is_owed: Callable[[Sent], bool] = lambda _: True,
    ) -> None:
        self._is_owed = is_owed
        self._all: Acknowledged = {}
        settings = settings_of(**MAPPING) if settings is None else settings
        super().__init__(
            kafka,
            folder,
            settings,
            guarantee=guarantee,
            model=payments() if model is None else model,
            partitions=partitions,
            session=session,
        )

    @property
    def acknowledged(self) -> Acknowledged:
        """The acknowledged records that get an answer."""
        return {at: sent for at, sent in dict(self._all).items() if self._is_owed(sent)}

    @acknowledged.setter
    def acknowledged(self, acknowledged: Acknowledged) -> None:
        self._all = acknowledged

    def publish_in_order(self, records: Sequence[Sent], topic: str | None = None) -> list[Position]:
        """Send these records, each an object of its own; their positions in this order."""
        places = {id(sent): at for at, sent in self.publish(records, topic).items()}
        return [places[id(sent)] for sent in records]

    def by_source(self) -> dict[Position, Answer]:
        """The first answer to each record, once all have one."""
        found: dict[Position, Answer] = {}
        for answer in self.answers():
            assert answer.source is not None, answer
            found.setdefault(answer.source, answer)
        return found

    def expect_right_answers(self) -> None:
        """Fail the test unless each answer, repeats included, is what numpy says."""
        acknowledged = self.acknowledged
        for found in self.answers():
            assert found.source is not None
            expect_answer(found, right_answer(json.loads(acknowledged[found.source].value or b"")))


def latencies(kafka: Cluster, scene: Scene, partition: int) -> list[float]:
    """The seconds from each request of this partition until its answer was produced, by the records' timestamps."""
    asked, answered = _stamps(kafka, scene.topic), _answered(kafka, scene.response_topic)
    return [(answered[at] - stamp) / 1000 for at, stamp in sorted(asked.items()) if at.partition == partition]


def _stamps(kafka: Cluster, topic: str) -> dict[Position, int]:
    return {
        Position(topic, message.partition() or 0, message.offset() or 0): message.timestamp()[1]
        for message in _messages(kafka, topic)
    }


def _answered(kafka: Cluster, topic: str) -> dict[Position, int]:
    found: dict[Position, int] = {}
    for message in _messages(kafka, topic):
        headers: Any = message.headers()
        of, partition, offset = dict(headers)["source"].decode().split("/")
        found[Position(of, int(partition), int(offset))] = message.timestamp()[1]
    return found


def _messages(kafka: Cluster, topic: str) -> Iterator[Message]:
    left = sum(kafka.end_offsets(topic).values())
    consumer = Consumer({**kafka.login, "group.id": "nobody", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(kafka.partitions(topic))])
    deadline = time.monotonic() + TIMEOUT
    while left:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            left -= 1
            yield message
        assert time.monotonic() < deadline, f"{left} records of {topic} do not come"
    consumer.close()

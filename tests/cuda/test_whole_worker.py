"""Workers with two lanes, as their own processes: they find CUDA as they would on a machine with a GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests import models
from tests.kafka.replica import Replica
from worker.tools.kafka.embedded import CLIENT_CONFIG, EmbeddedBroker

REQUESTS = range(300)
POISON = 1_000_000  # the stand-in's context dies of this number
LOST = "lost its device: CUDA failure 700: an illegal memory access was encountered"
TIMEOUT = 40.0


def publish(servers: str, numbers: Iterable[int], poisoned: Collection[int] = ()) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in numbers:
        rows, value = 1 + number % 3, POISON if number in poisoned else number
        tensor = {"name": "x", "datatype": "INT64", "shape": [rows, 2], "data": [value] * (2 * rows)}
        producer.produce("requests", json.dumps({"inputs": [tensor]}), key=str(number))
    assert producer.flush(TIMEOUT) == 0


def answers(servers: str) -> Mapping[int, list[int] | str]:
    """The answer to each request, or the message of its error."""
    reader = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest", **CLIENT_CONFIG}
    )
    reader.subscribe(["answers"])
    found: dict[int, list[int] | str] = {}
    deadline = time.monotonic() + TIMEOUT
    while len(found) < len(REQUESTS):
        assert time.monotonic() < deadline, f"only {len(found)} answers came"
        for message in reader.consume(len(REQUESTS), 0.1):
            answer = json.loads(message.value() or b"")
            found[int(message.key() or b"")] = answer["outputs"][0]["data"] if "outputs" in answer else answer["error"]
    reader.close()
    return found


def settings(broker: EmbeddedBroker, folder: Path) -> Mapping[str, str]:
    return {
        "KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "KAFKA__REQUEST_TOPICS": "requests",
        "KAFKA__RESPONSE_TOPIC": "answers",
        "KAFKA__GROUP_ID": "workers",
        "KAFKA__SESSION_TIMEOUT_MS": "3000",  # the wait for a dead member
        "MODEL__PATH": str(models.save(models.identity("INT64", (2,)), folder)),
        "MODEL__DEVICE": "cuda",
        "BATCHING__MAX_BATCH_SIZE": "8",
        "BATCHING__LANES": "2",
    }


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        for topic in ("requests", "answers"):
            broker.create_topic(topic)
        yield broker


EACH_ITS_OWN = {number: [number] * (2 + number % 3 * 2) for number in REQUESTS}


def test_records_that_kill_the_context_are_refused_and_their_neighbours_answered(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Two of one batch, and one of another: the worker goes on, and so do both lanes."""
    deadly = {"STAND_IN_POISON": str(POISON)}
    poisoned = (100, 101, 217)
    with Replica(settings(broker, tmp_path), tmp_path, "worker", deadly) as worker:
        worker.wait_until_ready()
        publish(broker.bootstrap_servers, REQUESTS, poisoned)

        found = answers(broker.bootstrap_servers)
        worker.terminate()

        assert worker.exit_code() == 0, worker.log
    refused = {number: found[number] for number in poisoned}
    assert set(refused.values()) == {f"the model failed on this record: its process {LOST}"}
    assert found == {**EACH_ITS_OWN, **refused}


def test_a_device_that_falls_off_ends_the_worker_and_costs_no_answer(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Exit code 5 under load, when three hosts in a row have not found it; the next worker answers the rest."""
    gone = tmp_path / "gone"
    with Replica(settings(broker, tmp_path), tmp_path, "first", {"STAND_IN_GONE": str(gone)}) as first:
        first.wait_until_ready()
        publish(broker.bootstrap_servers, REQUESTS[:150])
        gone.touch()
        publish(broker.bootstrap_servers, REQUESTS[150:])

        code = first.exit_code()

        assert code == 5, first.log
        assert "CUDA failure 999" in first.log
    with Replica(settings(broker, tmp_path), tmp_path, "second").wait_until_ready() as second:
        found = answers(broker.bootstrap_servers)
        second.terminate()

        assert second.exit_code() == 0, second.log
    assert found == EACH_ITS_OWN

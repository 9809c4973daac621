"""Workers with two lanes, as their own processes: they find CUDA as they would on a machine with a GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests import models
from tests.cuda.cuda import ILLEGAL_ADDRESS
from tests.kafka.replica import Replica
from worker.tools.kafka.embedded import CLIENT_CONFIG, EmbeddedBroker

REQUESTS = 300
COPIES = 80  # two for each batch; the start takes some two dozen
TIMEOUT = 40.0


def publish(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(REQUESTS):
        rows = 1 + number % 3
        tensor = {"name": "x", "datatype": "INT64", "shape": [rows, 2], "data": [number] * (2 * rows)}
        producer.produce("requests", json.dumps({"id": str(number), "inputs": [tensor]}))
    assert producer.flush(TIMEOUT) == 0


def answers(servers: str) -> Mapping[str, list[int]]:
    """The answer to each request."""
    reader = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest", **CLIENT_CONFIG}
    )
    reader.subscribe(["answers"])
    found: dict[str, list[int]] = {}
    deadline = time.monotonic() + TIMEOUT
    while len(found) < REQUESTS:
        assert time.monotonic() < deadline, f"only {len(found)} answers came"
        for message in reader.consume(REQUESTS, 0.1):
            answer = json.loads(message.value() or b"")
            found[answer["id"]] = answer["outputs"][0]["data"]
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


EACH_ITS_OWN = {str(number): [number] * (2 + number % 3 * 2) for number in range(REQUESTS)}


def test_a_device_that_falls_off_ends_the_worker_and_costs_no_answer(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Exit code 5 under load; the next worker answers the rest."""
    lost = {"STAND_IN_FAIL": f"cudaMemcpyAsync:{ILLEGAL_ADDRESS}:{COPIES}"}
    first = Replica(settings(broker, tmp_path), tmp_path, "first", lost).wait_until_ready(TIMEOUT)
    publish(broker.bootstrap_servers)

    code = first.exit_code()
    second = Replica(settings(broker, tmp_path), tmp_path, "second").wait_until_ready(TIMEOUT)
    found = answers(broker.bootstrap_servers)
    second.terminate()

    assert code == 5, first.log
    assert "the device is lost" in first.log
    assert second.exit_code() == 0, second.log
    assert found == EACH_ITS_OWN

"""A worker with two lanes, as its own process: it finds CUDA as it would on a machine with a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests import models
from tests.kafka.replica import Replica
from worker.tools.kafka.embedded import CLIENT_CONFIG, EmbeddedBroker

REQUESTS = 300
TIMEOUT = 40.0


def publish(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(REQUESTS):
        rows = 1 + number % 3
        tensor = {"name": "x", "datatype": "INT64", "shape": [rows, 2], "data": [number] * (2 * rows)}
        producer.produce("requests", json.dumps({"id": str(number), "inputs": [tensor]}))
    assert producer.flush(TIMEOUT) == 0


def answers(servers: str) -> Mapping[str, list[int]]:
    """What came to each request."""
    reader = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest", **CLIENT_CONFIG}
    )
    reader.subscribe(["answers"])
    found: dict[str, list[int]] = {}
    while len(found) < REQUESTS:
        messages = reader.consume(REQUESTS, TIMEOUT)
        assert messages, f"only {len(found)} answers came"
        for message in messages:
            answer = json.loads(message.value() or b"")
            found[answer["id"]] = answer["outputs"][0]["data"]
    reader.close()
    return found


def test_a_worker_on_cuda_answers_each_request_with_its_own(tmp_path: Path) -> None:
    """Loaded, warmed up, probed and bound as everywhere else, and ended in order."""
    with EmbeddedBroker() as broker:
        for topic in ("requests", "answers"):
            broker.create_topic(topic)
        replica = Replica(
            {
                "KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
                "KAFKA__REQUEST_TOPICS": "requests",
                "KAFKA__RESPONSE_TOPIC": "answers",
                "KAFKA__GROUP_ID": "workers",
                "MODEL__PATH": str(models.save(models.identity("INT64", (2,)), tmp_path)),
                "MODEL__DEVICE": "cuda",
                "BATCHING__MAX_BATCH_SIZE": "8",
                "BATCHING__MAX_INFLIGHT_BATCHES": "2",
                "BATCHING__LANES": "2",
            },
            tmp_path,
        ).wait_until_ready(TIMEOUT)
        publish(broker.bootstrap_servers)
        found = answers(broker.bootstrap_servers)
        replica.terminate()

        assert replica.exit_code() == 0, replica.log
    assert found == {str(number): [number] * (2 + number % 3 * 2) for number in range(REQUESTS)}
    assert "WORKER_MODEL__DEVICE is cuda" in replica.log
    assert "plain runs" not in replica.log

"""The client library says where its answers stand still, on a real Kafka."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from inference_client import DeadlineExceeded, InferenceClient
from inference_client.exchange import LOOK_EVERY
from inference_client.standstill import LONG
from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import TIMEOUT, Cluster, fresh
from tests.kafka.spoiled_batches import AS_ONE, spoil


def _why_late(client: InferenceClient, seconds: float) -> str:
    with pytest.raises(DeadlineExceeded) as caught:
        client.infer({"x": [[1.0]]}, timeout=seconds)
    return str(caught.value)


def test_a_transaction_that_stays_open_and_a_batch_that_cannot_be_parsed_are_told(hurt_broker: JvmBroker) -> None:
    """With topic, partition and offset. Behind both a timeout asks for a worker again, as one before them did."""
    cluster = Cluster(hurt_broker.bootstrap_servers)
    cluster.wait_until_coordinating()
    requests, answers = cluster.create_topic("requests"), cluster.create_topic("answers")
    other = Producer({**cluster.login, **AS_ONE, "transactional.id": fresh("other")})
    other.init_transactions(TIMEOUT)
    with InferenceClient(hurt_broker.bootstrap_servers, requests=requests, answers=answers, timeout=60.0) as client:
        assert "does a worker run" in _why_late(client, 0.2)
        other.begin_transaction()
        for number in range(10):
            other.produce(answers, b"%d" % number)
        other.flush(TIMEOUT)

        while_open = _why_late(client, 2 * LOOK_EVERY)
        spoil(hurt_broker.data, answers, 0, offset=3)
        other.commit_transaction(TIMEOUT)
        at_once = _why_late(client, 0.2)
        at_the_batch = _why_late(client, LOOK_EVERY + LONG + 1.0)
        with InferenceClient(hurt_broker.bootstrap_servers, requests=requests, answers=answers) as new:
            time.sleep(LOOK_EVERY + LONG + 1.0)
            behind = _why_late(new, 0.2)

    assert "answers have stood still for" in while_open
    assert f"{answers}/0 at offset 0, its log goes on to 10" in while_open
    assert "at offset 3" not in at_once
    assert f"{answers}/0 at offset 3, its log goes on to 11. Either the batch there cannot be parsed" in at_the_batch
    assert "does a worker run" in behind

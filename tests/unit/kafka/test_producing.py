"""Where an answer goes, and why it may get there never."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from worker.kafka.producing import ANY_PARTITION, partition_of, why_refused


def test_a_key_decides() -> None:
    """Every Kafka client puts a key where every other does."""
    assert partition_of("answers", b"k", 5, {"answers": 4}) == ANY_PARTITION


@pytest.mark.parametrize("key", [None, b""])
def test_without_a_key_the_request_s_partition_decides(key: bytes | None) -> None:
    """Order holds there too, though the topics differ in size; not every client counts an empty key as one."""
    assert partition_of("answers", key, 5, {"answers": 4, "dead-letters": 2}) == 1


@pytest.mark.parametrize("code", [KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC])
def test_a_topic_that_is_gone_is_no_refusal_of_the_brokers(code: int) -> None:
    """The client gives up by itself, in words that name neither the topic nor what was done to it."""
    assert why_refused("answers", KafkaError(code)).startswith("topic answers was deleted, or made anew with fewer")


def test_a_refusal_of_the_brokers_is_told_as_one() -> None:
    """In its own words."""
    told = why_refused("answers", KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    assert told == "the broker refused a record for topic answers: Broker: Message size too large"

"""The destination of an answer, and the reasons why it may never get there."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from worker.core.failures import ReplyRefused
from worker.kafka.producer.sink import Destinations, why_refused

DESTINATIONS = Destinations({"answers": 4, "dead-letters": 2}, frozenset({"dead-letters"}))


@pytest.mark.parametrize("key", [None, b""])
def test_without_a_key_the_request_s_partition_decides(key: bytes | None) -> None:
    """This keeps the order even if topics differ in size. Not every client counts an empty key as a key."""
    assert DESTINATIONS.without_key("answers", key, 5, None) == (key, 1)


def test_a_compacted_topic_gets_an_empty_key() -> None:
    """A compacted topic takes no record without a key, and one publisher without keys could end every worker."""
    assert DESTINATIONS.without_key("dead-letters", None, 5, None) == (b"", 1)


@pytest.mark.parametrize(
    ("topic", "code", "is_final"),
    [
        ("mine", KafkaError._UNKNOWN_TOPIC, True),
        ("mine", KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        (None, KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        ("answers", KafkaError.MSG_SIZE_TOO_LARGE, True),
        ("mine", KafkaError._FATAL, False),
        ("mine", KafkaError._MSG_TIMED_OUT, False),
        ("answers", KafkaError._UNKNOWN_TOPIC, False),
    ],
)
def test_a_refusal_that_a_new_start_cures_is_told_from_one_that_passes(
    topic: str | None, code: int, *, is_final: bool
) -> None:
    """A broker that is away, or a broken producer, says nothing about the topic."""
    destinations = Destinations({"answers": 4, "mine": 2}, replies=frozenset({"mine"}))

    assert destinations.is_final(topic, KafkaError(code)) is is_final
    assert not destinations.is_final(topic, None)
    assert not DESTINATIONS.is_final(None, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


@pytest.mark.parametrize(("topic", "is_of_reply"), [("mine", True), ("answers", False), (None, False)])
def test_only_a_topic_that_requests_name_is_gone_on_without(topic: str | None, *, is_of_reply: bool) -> None:
    """The failure names it for the next process."""
    destinations = Destinations({"answers": 4, "mine": 2}, replies=frozenset({"mine"}))

    failure = destinations.failure("refused", topic, KafkaError(KafkaError.INVALID_TIMESTAMP))

    assert isinstance(failure, ReplyRefused) is is_of_reply
    assert not isinstance(destinations.failure("away", topic, KafkaError(KafkaError._MSG_TIMED_OUT)), ReplyRefused)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError._UNKNOWN_PARTITION, "topic answers was deleted, or made anew with fewer"),
        (KafkaError._UNKNOWN_TOPIC, "topic answers was deleted, or made anew with fewer"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Broker: Topic authorization failed"),
        (KafkaError.MSG_SIZE_TOO_LARGE, "was its max.message.bytes lowered"),
        (KafkaError.INVALID_RECORD, "a compacted topic takes none without a key"),
    ],
)
def test_a_refusal_names_the_topic_and_the_cure(code: int, said: str) -> None:
    """The client's error does not name a topic that is gone, and the broker gives few reasons."""
    told = why_refused("answers", KafkaError(code))

    assert said in told
    assert "answers" in told

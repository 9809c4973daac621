"""Where an answer goes, and why it may get there never."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from tests.fakes import Onlooker
from tests.unit.kafka.producer.test_unacknowledged import BELOW, WELL, text, topic
from worker.kafka.client.log import ClientLog
from worker.kafka.producer.destination import Destinations, why_refused
from worker.kafka.producer.unacknowledged import Unacknowledged

DESTINATIONS = Destinations({"answers": 4, "dead-letters": 2}, frozenset({"dead-letters"}))


@pytest.mark.parametrize("key", [None, b""])
def test_without_a_key_the_request_s_partition_decides(key: bytes | None) -> None:
    """Order holds there too, though the topics differ in size; not every client counts an empty key as one."""
    assert DESTINATIONS.without_key("answers", key, 5, None) == (key, 1)


def test_a_partition_that_the_requester_chose_stays() -> None:
    """Also without a key."""
    assert DESTINATIONS.without_key("answers", None, 5, 3) == (None, 3)


def test_a_compacted_topic_gets_an_empty_key() -> None:
    """It takes no record without one, and one publisher without keys could end every worker."""
    assert DESTINATIONS.without_key("dead-letters", None, 5, None) == (b"", 1)


@pytest.mark.parametrize(
    ("topic", "code", "is_shut"),
    [
        ("mine", KafkaError._UNKNOWN_TOPIC, True),
        ("mine", KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        ("mine", KafkaError.INVALID_TIMESTAMP, True),
        ("mine", KafkaError.MSG_SIZE_TOO_LARGE, True),
        ("mine", KafkaError._FATAL, False),
        ("mine", KafkaError._MSG_TIMED_OUT, False),
        ("answers", KafkaError._UNKNOWN_TOPIC, False),
    ],
)
def test_a_refusal_that_is_the_topic_s_own_closes_one_that_requests_name(
    topic: str, code: int, *, is_shut: bool
) -> None:
    """A broker that is away, or a producer that is broken, says nothing of the topic."""
    destinations = Destinations({"answers": 4, "mine": 2}, replies=frozenset({"mine"}))

    assert destinations.is_shut(topic, KafkaError(code)) is is_shut
    assert not destinations.is_shut(topic, None)


@pytest.mark.parametrize("code", [KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC])
def test_a_topic_that_is_gone_is_no_refusal_of_the_brokers(code: int) -> None:
    """The client gives up by itself, in words that name neither the topic nor what was done to it."""
    assert why_refused("answers", KafkaError(code)).startswith("topic answers was deleted, or made anew with fewer")


def test_a_refusal_of_the_brokers_is_told_as_one() -> None:
    """In its own words."""
    told = why_refused("answers", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    assert told == "the broker refused a record for topic answers: Broker: Topic authorization failed"


def test_a_limit_that_was_lowered_is_told_with_its_cure() -> None:
    """Or one that was set and is more than the topic takes."""
    told = why_refused("answers", KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    assert told.startswith("the broker refused a record for topic answers as too large: its max.message.bytes was")


def test_a_topic_that_takes_nothing_is_told_with_what_may_mend_it(caplog: pytest.LogCaptureFixture) -> None:
    """The client is silent of it: it tries again and waits. Once, as all that repeats itself."""
    onlooker, log, outstanding = Onlooker(), ClientLog(logging.getLogger("kafka"), lambda: 1.0), Unacknowledged()

    for sent in [WELL, *BELOW]:
        outstanding.tell(onlooker, log, text(119 if sent != WELL else 0, answers=topic(sent)))

    assert onlooker.undelivered == {"answers": 119}
    assert onlooker.connections == 1
    (told,) = caplog.messages
    assert told == (
        "topic answers takes nothing of what is sent to 2 of its partitions again and again; up to 119 messages wait "
        "for it; has it as many in-sync replicas as its min.insync.replicas asks for? "
        "kafka-topics.sh --describe --under-min-isr-partitions; or is a message larger than the broker's "
        "socket.request.max.bytes?"
    )


def test_statistics_that_cannot_be_read_are_told_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """An exception would come out of whatever call serves the client."""
    Unacknowledged().tell(Onlooker(), ClientLog(logging.getLogger("kafka")), '{"topics": {"answers": {}}}')

    assert caplog.messages == ["the producer's statistics are not understood: KeyError('partitions')"]


def test_a_topic_that_takes_no_record_without_a_key_is_told() -> None:
    """The broker only says that a record is not valid."""
    told = why_refused("answers", KafkaError(KafkaError.INVALID_RECORD))

    assert told.endswith("failed to validate record; a compacted topic takes none without a key")

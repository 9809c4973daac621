"""When a consumer without a connection is given up for a new one."""

from __future__ import annotations

from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException

from tests.fakes import Clock
from worker.kafka.consumer.stranded import ASK_AGAIN_AFTER, STRANDED_AFTER, Stranded


class Brokers:
    """Makes clients that reach them, or do not."""

    def __init__(self) -> None:
        self.are_away = False
        self.asked = self.closed = 0

    def list_topics(self, timeout: float) -> None:  # nothing takes time here
        self.asked += 1
        if self.are_away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker answers"))

    def close(self) -> None:
        self.closed += 1

    def client(self) -> Consumer:
        return cast("Consumer", self)


def test_it_is_stranded_when_brokers_answer_others_for_long() -> None:
    """The reason says for how long it had no connection."""
    brokers, clock = Brokers(), Clock()
    stranded = Stranded(brokers.client, clock)
    assert stranded.why(0) is None
    clock.now += STRANDED_AFTER - 1
    assert stranded.why(0) is None
    assert brokers.asked == 0

    clock.now += 1

    assert (stranded.why(0) or "").startswith("the consumer has had no connection for 45 s")
    assert (brokers.asked, brokers.closed) == (1, 1)


def test_brokers_that_are_away_are_asked_again_later() -> None:
    """It is theirs to come back."""
    brokers, clock = Brokers(), Clock()
    brokers.are_away = True
    stranded = Stranded(brokers.client, clock)
    stranded.why(0)
    clock.now += STRANDED_AFTER
    assert stranded.why(0) is None
    brokers.are_away = False
    assert stranded.why(0) is None

    clock.now += ASK_AGAIN_AFTER

    assert stranded.why(0) is not None
    assert (brokers.asked, brokers.closed) == (2, 2)


def test_a_connection_begins_the_wait_anew() -> None:
    """However short it stood."""
    brokers, clock = Brokers(), Clock()
    stranded = Stranded(brokers.client, clock)
    stranded.why(0)
    clock.now += STRANDED_AFTER
    assert stranded.why(1) is None
    assert stranded.why(0) is None
    assert brokers.asked == 0

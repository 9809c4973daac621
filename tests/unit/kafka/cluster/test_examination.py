"""The questions about topics at the start, beside a broker that has not heard of one yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import ClusterMetadata, PartitionMetadata, TopicMetadata

from tests.fakes import Clock
from tests.unit.kafka.client.test_config import settings
from worker.kafka.client.command_clients import client_log
from worker.kafka.client.connecting import Contact
from worker.kafka.client.membership import Membership
from worker.kafka.cluster import examination
from worker.kafka.cluster.examination import LEAST_REPLY_BYTES, Topics, judge

ABSENT = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


class Broker:
    """Hears of the topics at this time of the clock."""

    def __init__(self, clock: Clock, hears_at: float) -> None:
        self._clock = clock
        self._hears_at = hears_at

    def list_topics(self, topic: str = "", *, timeout: float) -> ClusterMetadata:
        assert timeout > 0
        found = TopicMetadata()
        if self._clock.now < self._hears_at:
            found.error = ABSENT
        else:
            found.partitions = {0: PartitionMetadata()}
        metadata = ClusterMetadata()
        metadata.topics = {topic: found} if topic else {}
        return metadata


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The module's own time."""
    clock = Clock()
    monkeypatch.setattr(examination, "time", SimpleNamespace(monotonic=clock, sleep=clock.wait))
    return clock


def problems(broker: Broker) -> list[str]:
    mock: Any = ClusterMetadata()  # of which nothing else is asked
    mock.cluster_id = "mockCluster1f"
    contact = Contact(cast("Any", broker), client_log(), mock)
    return [problem.text for problem in judge(settings(), contact, 1.0).problems]


def test_a_topic_that_was_made_a_moment_ago_is_waited_for(clock: Clock) -> None:
    """Not every broker has heard of it when the command that made it is back."""
    assert problems(Broker(clock, clock.now + 1.0)) == []


def test_topics_that_are_not_there_are_waited_for_once(clock: Clock) -> None:
    """And not one after the other."""
    began = clock.now

    assert len(problems(Broker(clock, began + 1000.0))) == 2

    assert clock.now - began == pytest.approx(examination.NEW_TOPIC_TIMEOUT, abs=0.3)


class Without(Broker):
    """Has all topics but this one."""

    def __init__(self, clock: Clock, topic: str) -> None:
        super().__init__(clock, clock.now)
        self._absent = topic

    def list_topics(self, topic: str = "", *, timeout: float) -> ClusterMetadata:
        metadata = super().list_topics(topic, timeout=timeout)
        if topic == self._absent:
            metadata.topics[topic].error = ABSENT
        return metadata


def test_a_reply_topic_that_is_not_there_keeps_no_worker_from_starting(clock: Clock) -> None:
    """It may be another's. The operator is told, and requests that name it are."""
    mock: Any = ClusterMetadata()
    mock.cluster_id = "mockCluster1f"
    contact = Contact(cast("Any", Without(clock, "mine")), client_log(), mock)

    verdict = judge(settings(reply_topics="mine,yours"), contact, 1.0)

    assert verdict.problems == ()
    assert verdict.topics is not None
    assert verdict.topics.shut == {"mine": "it is not there, as the worker saw it at its start"}
    assert verdict.topics.replies == {"yours"}
    assert verdict.topics.max_bytes.keys() == {"a", "yours"}
    assert any("no topic mine" in note and "get an error" in note for note in verdict.topics.notes)


def test_a_reply_topic_may_take_as_little_as_the_response_topic(clock: Clock) -> None:
    """Batches are as small for that one anyway."""
    mock: Any = ClusterMetadata()
    mock.cluster_id = "mockCluster1f"
    contact = Contact(cast("Any", Broker(clock, clock.now)), client_log(), mock)

    verdict = judge(settings(reply_topics="mine", max_message_bytes=LEAST_REPLY_BYTES - 1), contact, 1.0)

    assert verdict.topics is not None
    assert verdict.topics.shut == {}
    assert verdict.topics.max_bytes["mine"] == LEAST_REPLY_BYTES - 1


def test_topics_take_less_when_one_is_shut_smaller_or_has_fewer_partitions() -> None:
    """One that begins anew then writes other answers. A response topic with fewer partitions is its start's matter."""

    def topics(partitions: int, limit: int) -> Topics:
        found = {"a": partitions, "mine": partitions}
        limits = {"a": limit, "mine": limit}
        return Topics(found, limits, Membership("consumer", "test", None), replies=frozenset({"mine"}))

    before = topics(2, 1000)

    assert not before.takes_less_than(before)
    assert not topics(3, 2000).takes_less_than(before)
    assert topics(1, 1000).takes_less_than(before)
    assert topics(2, 999).takes_less_than(before)
    assert before.shutting({"mine": "gone"}).takes_less_than(before)
    assert not before.shutting({"mine": "gone"}).takes_less_than(before.shutting({"mine": "gone"}))

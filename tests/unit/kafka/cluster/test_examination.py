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
from worker.kafka.cluster import examination
from worker.kafka.cluster.examination import judge

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

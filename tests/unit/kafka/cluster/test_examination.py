"""The questions about topics at the start, to a broker that has not yet heard of one."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata, PartitionMetadata, TopicMetadata

from tests.fakes import Clock
from tests.unit.kafka.client.test_config import settings
from worker.kafka.client import command_clients
from worker.kafka.client.command_clients import client_log
from worker.kafka.client.connecting import Contact
from worker.kafka.cluster import examination
from worker.kafka.cluster.examination import StartVerdict, judge

ABSENT = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


class Broker:
    """A broker that hears of the topics at this time of the clock."""

    def __init__(self, clock: Clock, hears_at: float) -> None:
        self._clock = clock
        self._hears_at = hears_at
        self.log = client_log()

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
    """One clock for both modules."""
    clock = Clock()
    for module in (examination, command_clients):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock, sleep=clock.wait))
    return clock


def verdict_on(broker: Broker, cluster_id: str = "mockCluster1f", **changes: object) -> StartVerdict:
    """The verdict on a cluster. A mock cluster is asked only about its topics."""
    cluster: Any = ClusterMetadata()
    cluster.cluster_id = cluster_id
    return judge(settings(**changes), Contact(cast("Any", broker), broker.log, cluster), 1.0)


def problems(broker: Broker) -> list[str]:
    return list(verdict_on(broker).problems)


def test_a_topic_that_was_made_a_moment_ago_is_waited_for(clock: Clock) -> None:
    """When the command that made it returns, not every broker has heard of it."""
    assert problems(Broker(clock, clock.now + 1.0)) == []


def test_topics_that_are_not_there_are_waited_for_once(clock: Clock) -> None:
    """They are not waited for one after the other."""
    began = clock.now

    assert len(problems(Broker(clock, began + 1000.0))) == 2

    assert clock.now - began == pytest.approx(command_clients.NEW_TOPIC_TIMEOUT, abs=0.3)


class Without(Broker):
    """A broker that has all topics except this one."""

    def __init__(self, clock: Clock, topic: str) -> None:
        super().__init__(clock, clock.now)
        self._absent = topic

    def list_topics(self, topic: str = "", *, timeout: float) -> ClusterMetadata:
        metadata = super().list_topics(topic, timeout=timeout)
        if topic == self._absent:
            metadata.topics[topic].error = ABSENT
        return metadata


class Advertised(Broker):
    """A broker that answers the first contact, and calls itself by an address where nothing listens."""

    def describe_topics(self, *_: object, **__: object) -> dict[str, Future[object]]:
        silent: Future[object] = Future()
        silent.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return dict.fromkeys(("r", "a"), silent)

    def poll(self, _timeout: float) -> None:
        self.log.log(logging.ERROR, "", "FAIL", "", "inside:9092/1: Connect to ipv4#10.0.0.1:9092: Connection refused")


def test_a_broker_that_calls_itself_by_an_address_out_of_reach_is_refused(clock: Clock) -> None:
    """This is common with containers and tunnels. No more is asked, since each question would wait in vain."""
    verdict = verdict_on(Advertised(clock, clock.now), "real")

    (problem,) = verdict.problems
    assert "nothing listens at inside:9092" in problem
    assert "advertised.listeners" in problem


def test_a_reply_topic_that_is_not_there_keeps_no_worker_from_starting(clock: Clock) -> None:
    """Another team may own it. The operator gets a note; requests that name it get an error."""
    verdict = verdict_on(Without(clock, "mine"), reply_topics="mine,yours")

    assert verdict.problems == ()
    assert verdict.topics is not None
    assert verdict.topics.shut == {"mine": "it is not there, as the worker saw it at its start"}
    assert verdict.topics.replies == {"yours"}
    assert verdict.topics.max_bytes.keys() == {"a", "yours"}
    assert any("no topic mine" in note and "get an error" in note for note in verdict.topics.notes)

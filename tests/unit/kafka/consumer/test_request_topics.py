"""Request topics that are gone: the second look confirms it, and the first look at a topic that is back ends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata, PartitionMetadata, TopicMetadata

from tests.fakes import Clock
from worker.kafka.consumer import reports
from worker.kafka.consumer.reports import LOOK_EVERY, RequestTopics

ABSENT = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
CLOSED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Watch:
    """Two topics, watched once a second by the test's clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: dict[str, KafkaError] = {}
        self.is_away = False  # the cluster
        self.is_silent = False  # its answer leaves out the topic
        self.looks = 0
        self.open = 0  # clients that are open
        self.told: list[list[list[str]]] = []  # absent topics, and topics that are back
        self.partitions = {"orders": 200, "backfill": 4}
        self.counted: list[Mapping[str, int]] = []
        self.clock = Clock()
        self.started: list[Callable[[], object]] = []
        self.is_slow = False
        monkeypatch.setattr(reports, "in_background", lambda work, _: self.started.append(work))
        self.topics = RequestTopics(("orders", "backfill"), self._client, self.clock)

    def seconds(self, count: float) -> None:
        for _ in range(int(count)):
            self.clock.now += 1
            if (seen := self.topics.attend()) is not None:
                self.counted.append(seen.partitions)
                if seen.absent is not None:
                    self.told.append([sorted(seen.absent), sorted(seen.back)])
            while self.started and not self.is_slow:
                self.started.pop()()

    def _client(self) -> Consumer:
        self.open += 1
        return cast("Consumer", self)

    def list_topics(self, topic: str, timeout: float) -> ClusterMetadata:
        assert timeout > 0
        self.looks += topic == "orders"
        if self.is_away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        metadata = ClusterMetadata()
        if self.is_silent:
            return metadata
        found = metadata.topics[topic] = TopicMetadata()
        found.error = self.errors.get(topic)
        found.partitions = {} if found.error else {at: PartitionMetadata() for at in range(self.partitions[topic])}
        return metadata

    def close(self) -> None:
        self.open -= 1


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


LOOK = LOOK_EVERY + 1  # the result is heard a second later


def test_the_cluster_is_asked_again_and_again_by_one_client(watch: Watch) -> None:
    """It counts partitions: new ones would move keys away from the partitions with their states."""
    watch.seconds(LOOK)
    watch.partitions["orders"] = 210
    watch.seconds(LOOK)

    assert watch.counted == [{"orders": 200, "backfill": 4}, {"orders": 210, "backfill": 4}]
    assert (watch.looks, watch.open, watch.told) == (2, 1, [])
    watch.topics.close()
    assert watch.open == 0


def test_a_topic_that_is_gone_is_told_at_the_second_sight_and_once(watch: Watch) -> None:
    """A broker that has just started may not know the topic yet. The next look reports a topic that is back."""
    watch.errors["orders"] = ABSENT
    watch.seconds(LOOK)
    watch.errors = {"backfill": ABSENT}
    watch.seconds(LOOK)
    assert watch.told == []

    watch.seconds(4 * LOOK)
    watch.errors.clear()
    watch.seconds(LOOK)

    assert watch.told == [[["backfill"], []], [[], ["backfill"]]]


def test_a_cluster_that_does_not_answer_says_nothing(watch: Watch) -> None:
    """Absent and present topics stay so. A topic that may not be seen is not gone."""
    watch.errors = {"orders": ABSENT, "backfill": CLOSED}
    watch.seconds(2 * LOOK)
    watch.is_away = True

    watch.seconds(10)

    assert (watch.told, watch.open) == ([[["orders"], []]], 0)
    watch.topics.close()


def test_an_answer_without_the_topic_says_nothing_and_is_asked_for_again(watch: Watch) -> None:
    """The client hands on an answer that leaves out the topic asked about (seen with 2.16)."""
    watch.is_silent = True
    watch.seconds(LOOK)
    watch.is_silent, watch.errors = False, {"orders": ABSENT}

    watch.seconds(2 * LOOK)

    assert (watch.told, watch.open) == ([[["orders"], []]], 1)


def test_a_topic_that_is_gone_has_none_and_one_that_may_not_be_seen_is_left_out(watch: Watch) -> None:
    """A topic whose partitions the broker does not name yet is left out too."""
    watch.errors = {"orders": ABSENT, "backfill": CLOSED}
    watch.seconds(LOOK)
    watch.errors, watch.partitions = {}, {"orders": 3, "backfill": 0}
    watch.seconds(LOOK)

    assert watch.counted == [{"orders": 0}, {"orders": 3}]


def test_one_question_is_asked_at_a_time(watch: Watch) -> None:
    """This holds however long its answer takes."""
    watch.is_slow = True

    watch.seconds(4 * LOOK)

    assert len(watch.started) == 1

"""Whether a request topic is gone: asked for a reason, believed at the second sight, taken back at the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata, PartitionMetadata, TopicMetadata

from tests.fakes import Clock
from worker.kafka.consumer import request_topics
from worker.kafka.consumer.request_topics import LOOK_AGAIN_AFTER, LOOK_EVERY, LOOK_OFTEN, RequestTopics

ABSENT = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
CLOSED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Watch:
    """Two topics, watched once a second by a clock that the test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: dict[str, KafkaError] = {}
        self.is_away = False  # the cluster
        self.is_silent = False  # it says nothing of the topic that it was asked about
        self.looks = 0
        self.open = 0  # clients
        self.told: list[list[list[str]]] = []  # what is absent, and what is back
        self.partitions = {"orders": 200, "backfill": 4}
        self.counted: list[Mapping[str, int]] = []
        self.clock = Clock()
        self.started: list[Callable[[], object]] = []
        self.is_slow = False
        monkeypatch.setattr(request_topics, "in_background", lambda work, _: self.started.append(work))
        self.topics = self.watching()

    def watching(self, every: float = LOOK_EVERY) -> RequestTopics:
        return RequestTopics(
            ("orders", "backfill"),
            self._client,
            lambda *told: self.told.append([*map(sorted, told)]),
            self.counted.append,
            self.clock,
            every,
        )

    def seconds(self, count: float, *read: str) -> None:
        for _ in range(int(count)):
            self.clock.now += 1
            self.topics.attend(read)
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


def test_without_a_reason_it_is_asked_every_half_a_minute(watch: Watch) -> None:
    """And all clients are closed."""
    watch.seconds(3 * LOOK_EVERY + 3, "orders", "backfill")

    assert (watch.looks, watch.open, watch.told) == (3, 0, [])


def test_a_topic_that_must_not_grow_is_looked_at_more_often(watch: Watch) -> None:
    """Where keys have states: with more partitions they move away from these."""
    watch.topics = watch.watching(LOOK_OFTEN)

    watch.seconds(LOOK_OFTEN + 2, "orders", "backfill")

    assert watch.counted == [watch.partitions]


def test_a_topic_of_which_nothing_is_read_any_more_is_looked_for_at_once(watch: Watch) -> None:
    """As when a KIP-848 group takes its partitions away. It is told within a few seconds, once."""
    watch.seconds(10, "orders", "backfill")
    watch.errors["orders"] = ABSENT

    watch.seconds(LOOK_AGAIN_AFTER + 3, "backfill")

    assert watch.told == [[["orders"], []]]
    watch.seconds(LOOK_EVERY, "backfill")
    assert watch.told == [[["orders"], []]]


def test_one_that_another_replica_read_is_missed_within_a_minute(watch: Watch) -> None:
    """No error, and no partition that went."""
    watch.errors["orders"] = ABSENT

    watch.seconds(LOOK_EVERY + LOOK_AGAIN_AFTER + 3, "backfill")

    assert watch.told == [[["orders"], []]]


def test_a_broker_that_has_just_started_is_not_believed_at_once(watch: Watch) -> None:
    """It may not know of a topic yet."""
    watch.errors["orders"] = ABSENT
    watch.topics.doubt()
    watch.seconds(1)
    watch.errors.clear()

    watch.seconds(10)

    assert (watch.looks, watch.told) == (2, [])


def test_a_topic_that_is_back_is_told_by_the_next_look(watch: Watch) -> None:
    """While one is absent it is looked for every few seconds."""
    watch.errors = dict.fromkeys(("orders", "backfill"), ABSENT)
    watch.topics.doubt()
    watch.seconds(LOOK_AGAIN_AFTER + 3)
    watch.errors.pop("orders")
    watch.seconds(LOOK_AGAIN_AFTER + 1)
    watch.errors.clear()
    watch.seconds(LOOK_AGAIN_AFTER + 1)

    assert watch.told == [[["backfill", "orders"], []], [["backfill"], ["orders"]], [[], ["backfill"]]]


def test_a_cluster_that_does_not_answer_says_nothing(watch: Watch) -> None:
    """What was absent stays so, and what was there, too; nor is a topic gone that may not be seen."""
    watch.errors = {"orders": ABSENT, "backfill": CLOSED}
    watch.topics.doubt()
    watch.seconds(LOOK_AGAIN_AFTER + 3)
    watch.is_away = True

    watch.seconds(10)

    assert (watch.told, watch.open) == ([[["orders"], []]], 0)


def test_an_answer_without_the_topic_says_nothing_and_is_asked_for_again(watch: Watch) -> None:
    """The client hands on an answer that leaves out what was asked about (seen with 2.16)."""
    watch.is_silent = True
    watch.topics.doubt()
    watch.seconds(1)
    watch.is_silent, watch.errors = False, {"orders": ABSENT}

    watch.seconds(2 * LOOK_AGAIN_AFTER + 3)

    assert (watch.told, watch.open) == ([[["orders"], []]], 0)


def test_each_look_tells_how_many_partitions_there_are(watch: Watch) -> None:
    """Partitions that were added are known within half a minute, though no member reads them."""
    watch.seconds(LOOK_EVERY + 1, "orders", "backfill")
    watch.partitions["orders"] = 210
    watch.seconds(LOOK_EVERY + 1, "orders", "backfill")

    assert watch.counted == [{"orders": 200, "backfill": 4}, {"orders": 210, "backfill": 4}]


def test_a_topic_that_is_gone_has_none_and_one_that_may_not_be_seen_is_left_out(watch: Watch) -> None:
    """Nor is one counted of which the broker names no partition yet."""
    watch.errors = {"orders": ABSENT, "backfill": CLOSED}
    watch.topics.doubt()
    watch.seconds(1)
    watch.errors, watch.partitions = {}, {"orders": 3, "backfill": 0}
    watch.seconds(LOOK_AGAIN_AFTER + 2)

    assert watch.counted == [{"orders": 0}, {"orders": 3}]


def test_one_question_is_asked_at_a_time(watch: Watch) -> None:
    """However long its answer takes."""
    watch.is_slow = True
    watch.topics.doubt()

    watch.seconds(LOOK_EVERY)

    assert len(watch.started) == 1

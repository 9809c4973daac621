"""Warnings of `check`, and the rights that a worker needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka.admin import ConsumerGroupDescription

from worker.kafka.client.membership import resolve_transactional_id
from worker.kafka.cluster.examination import TopicFacts
from worker.kafka.cluster.survey import advice, reading
from worker.kafka.cluster.topics import missing, needed, needed_for_transactions, wished
from worker.settings import KafkaSettings

KAFKA = KafkaSettings(
    bootstrap_servers="b:9093,c:9093",
    request_topics=("r",),
    response_topic="a",
    dead_letter_topic="d",
    group_id="g",
    security_protocol="SASL_SSL",
    sasl_username="me",
)
GOOD = {"cleanup.policy": "delete", "max.message.bytes": "1048588"}


def topic(name: str, *, replication: int = 3, config: Mapping[str, str] | None = None) -> TopicFacts:
    setting = {"r": "REQUEST_TOPICS", "a": "RESPONSE_TOPIC", "d": "DEAD_LETTER_TOPIC"}[name]
    return TopicFacts(name, setting, 6, replication, {**GOOD, **(config or {})})


def told(*topics: TopicFacts, others: Mapping[str, str] = {}) -> list[str]:
    """The warnings on a cluster that is good except for these topics."""
    given = {one.name: one for one in (topic("r"), topic("a"), topic("d"), *topics)}
    return list(advice([*given.values()], others))


def test_each_fact_that_may_be_regretted_is_one_warning() -> None:
    """Too many warnings are not read."""
    assert told() == []
    assert [line.partition(":")[0] for line in told(topic("a", replication=1))] == ["a"]
    (shared,) = told(others={"other": "r"})
    assert shared.startswith("group other also reads topic r, and answers each of its requests, too")


def test_a_group_of_workers_is_known_by_its_members() -> None:
    """Another program may read the topic, and a worker that reads another topic is no trouble."""

    def group(name: str, client_id: str, topic: str) -> Any:
        assignment = SimpleNamespace(topic_partitions=[SimpleNamespace(topic=topic)])
        return SimpleNamespace(group_id=name, members=[SimpleNamespace(client_id=client_id, assignment=assignment)])

    groups = [
        group("worker", "inference-worker/m/1/0/0", "r"),
        group("program", "rdkafka", "r"),
        group("elsewhere", "inference-worker/m/1/0/0", "other"),
    ]

    assert reading(cast("list[ConsumerGroupDescription]", groups), ["r"]) == {"worker": "r"}


# Rights


def test_a_worker_needs_four_kinds_of_rights_and_wishes_for_one() -> None:
    """They are the table of the deploy guide."""
    assert [right[:4] for right in needed(KAFKA)] == [
        ("REQUEST_TOPICS", "topic", "r", "Read"),
        ("RESPONSE_TOPIC", "topic", "a", "Write"),
        ("DEAD_LETTER_TOPIC", "topic", "d", "Write"),
        ("GROUP_ID", "group", "g", "Read"),
    ]
    assert [right[:4] for right in wished(KAFKA)] == [
        ("RESPONSE_TOPIC", "topic", "a", "DescribeConfigs"),
        ("DEAD_LETTER_TOPIC", "topic", "d", "DescribeConfigs"),
    ]
    assert len(needed(KAFKA.model_copy(update={"dead_letter_topic": None}))) == 3


@pytest.mark.parametrize(
    ("pattern", "resource"),
    [
        (None, "transactional ids that begin with g-"),
        ("a-{hostname}", "transactional ids that begin with a-"),
        ("fixed", "transactional id fixed"),
    ],
)
def test_transactional_ids_are_ruled_by_their_common_beginning(pattern: str | None, resource: str) -> None:
    """Each replica has its own id; an id that is spelled out gets a rule for itself."""
    told = missing(needed_for_transactions(resolve_transactional_id(pattern, "g")), "write")

    variable = "WORKER_DELIVERY__TRANSACTIONAL_ID"
    assert told == f"{variable}: this client may not write {resource}; grant it the operation WRITE"

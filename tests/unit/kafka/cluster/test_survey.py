"""What `check` warns of, and who must be allowed what."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka.admin import ConsumerGroupDescription

from worker.kafka.client.membership import Membership
from worker.kafka.client.transactional_id import resolve_transactional_id
from worker.kafka.cluster.access import acl_command, missing, needed, needed_for_transactions, principal, wished
from worker.kafka.cluster.examination import TopicFacts, Topics
from worker.kafka.cluster.survey import GroupFacts, Progress, Survey, advice, reading
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
GOOD = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "min.insync.replicas": "2",
    "max.message.bytes": "1048588",
}
LIMITS = {"a": 1_048_588, "d": 1_048_588}
TOPICS = Topics({"r": 6, "a": 6, "d": 1}, LIMITS, Membership("consumer", "", 45.0), can_administer=True)


def topic(name: str, *, replication: int = 3, config: Mapping[str, str] | None = None) -> TopicFacts:
    setting = {"r": "REQUEST_TOPICS", "a": "RESPONSE_TOPIC", "d": "DEAD_LETTER_TOPIC"}[name]
    return TopicFacts(name, setting, 6, replication, {**GOOD, **(config or {})})


def told(
    *topics: TopicFacts, reset: str = "earliest", progress: Progress | None = None, others: Mapping[str, str] = {}
) -> list[str]:
    """The warnings on a cluster that is good except for these topics."""
    given = {one.name: one for one in (topic("r"), topic("a"), topic("d"), *topics)}
    group = GroupFacts("stable", 1, [] if progress is None else [progress])
    kafka = KAFKA.model_copy(update={"auto_offset_reset": reset})
    return [finding.text for finding in advice(kafka, Survey(["b:9093"], [*given.values()], group, others), TOPICS)]


def test_a_good_cluster_is_not_warned_of() -> None:
    """A reader who is warned of everything reads nothing."""
    assert told() == []
    assert told(progress=Progress("r", 6, 6, waiting=1000, expired=0)) == []
    assert told(progress=Progress("r", 6, 5, waiting=1000, expired=0)) == []
    assert told(progress=Progress("r", 6, 0, waiting=0, expired=0)) == []


@pytest.mark.parametrize(
    ("odd", "warning"),
    [
        (topic("a", replication=1), "a: on one broker only (replication factor 1)"),
        (topic("a", config={"min.insync.replicas": "1"}), "a: min.insync.replicas=1"),
        (topic("a", config={"cleanup.policy": "compact"}), "topic a is compacted: only the last record of each key"),
        (topic("d", config={"max.message.bytes": "2000"}), "topic d takes records of 2,000 bytes, fewer than"),
    ],
)
def test_each_fact_that_may_be_regretted_is_one_warning(odd: TopicFacts, warning: str) -> None:
    """With what it means."""
    (line,) = told(odd)

    assert line.startswith(warning)


@pytest.mark.parametrize(
    ("reset", "committed", "expired", "words"),
    [
        ("earliest", 6, 12_345, "12,345 requests were deleted before the group answered them"),
        ("earliest", 0, 0, "the group is new, and will answer all 3,060 requests that are there"),
        ("latest", 2, 0, "no offset for 4 of 6 partitions, and by WORKER_KAFKA__AUTO_OFFSET_RESET=latest the requests"),
        ("error", 2, 0, "no offset for 4 of 6 partitions, and by WORKER_KAFKA__AUTO_OFFSET_RESET=error a worker stops"),
    ],
)
def test_requests_that_were_lost_or_will_be_passed_over_are_counted(
    reset: str, committed: int, expired: int, words: str
) -> None:
    """By retention, or by where a new group begins."""
    (line,) = told(progress=Progress("r", 6, committed, waiting=3060, expired=expired), reset=reset)

    assert words in line


def test_a_group_that_answers_the_same_requests_is_warned_of() -> None:
    """Each request would have two answers, the second perhaps another model's."""
    (line,) = told(others={"other": "r"})

    assert line.startswith("group other also reads topic r, and answers each of its requests, too")


def test_a_group_of_workers_is_known_by_its_members() -> None:
    """Another program may read the topic; a worker that reads another topic is no trouble."""

    def group(name: str, client_id: str, topic: str) -> Any:
        assignment = SimpleNamespace(topic_partitions=[SimpleNamespace(topic=topic)])
        return SimpleNamespace(group_id=name, members=[SimpleNamespace(client_id=client_id, assignment=assignment)])

    groups = [
        group("worker", "inference-worker/m/1/0/0", "r"),
        group("program", "rdkafka", "r"),
        group("elsewhere", "inference-worker/m/1/0/0", "other"),
    ]

    assert reading(cast("list[ConsumerGroupDescription]", groups), ["r"]) == {"worker": "r"}


def test_a_wish_of_the_broker_is_warned_of_with_the_line_that_grants_it() -> None:
    """Only while something is missed without it, and never on a mock, where there is nothing to grant."""
    silent = TopicFacts("a", "RESPONSE_TOPIC", 6, 3, None)
    unknown = Topics({}, {**LIMITS, "a": 1_000_000}, Membership("consumer", "", None), can_administer=True)
    mock = Topics({}, {**LIMITS, "a": 1_000_000}, Membership("consumer", "", None))
    found = Survey(["b:9093"], [topic("r"), silent, topic("d")], None, {})

    limit, session = advice(KAFKA, found, unknown)
    (only,) = advice(KAFKA.model_copy(update={"max_message_bytes": 2_000_000}), found, unknown)

    assert limit.text.startswith("topic a: the broker does not tell its size limit, 1,000,000 bytes are assumed")
    assert limit.command == (
        "kafka-acls.sh --bootstrap-server b:9093 --add --allow-principal User:me --operation DescribeConfigs --topic a"
    )
    assert session.command.endswith("--operation DescribeConfigs --group g")
    assert only == session
    assert advice(KAFKA, found, mock) == []


# Rights


def test_a_worker_needs_four_kinds_of_rights_and_wishes_for_two() -> None:
    """The table of the deploy guide."""
    assert [right[:4] for right in needed(KAFKA)] == [
        ("REQUEST_TOPICS", "topic", "r", "Read"),
        ("RESPONSE_TOPIC", "topic", "a", "Write"),
        ("DEAD_LETTER_TOPIC", "topic", "d", "Write"),
        ("GROUP_ID", "group", "g", "Read"),
    ]
    assert [right[:4] for right in wished(KAFKA)] == [
        ("RESPONSE_TOPIC", "topic", "a", "DescribeConfigs"),
        ("DEAD_LETTER_TOPIC", "topic", "d", "DescribeConfigs"),
        ("GROUP_ID", "group", "g", "DescribeConfigs"),
    ]
    assert len(needed(KAFKA.model_copy(update={"dead_letter_topic": None}))) == 3


@pytest.mark.parametrize(
    ("pattern", "resource", "end"),
    [
        (None, "transactional ids that begin with g-", "--transactional-id g- --resource-pattern-type prefixed"),
        ("a-{hostname}", "ids that begin with a-", "--transactional-id a- --resource-pattern-type prefixed"),
        ("fixed", "transactional id fixed", "--transactional-id fixed"),
    ],
)
def test_transactional_ids_are_ruled_by_their_common_beginning(pattern: str | None, resource: str, end: str) -> None:
    """Each replica has its own; one that is spelled out is ruled alone. The line that grants it comes along."""
    told = missing(KAFKA, needed_for_transactions(resolve_transactional_id(pattern, "g")), "write")

    assert told.text.startswith("WORKER_DELIVERY__TRANSACTIONAL_ID: this client may not write transactional id")
    assert f"{resource}; grant it the operation WRITE" in told.text
    assert told.command.endswith(end)


def test_the_principal_is_named_as_the_broker_most_likely_does() -> None:
    """And quoted where a shell would take it apart."""
    oauth = KAFKA.model_copy(update={"sasl_mechanism": "OAUTHBEARER", "oauth_client_id": "scorer"})
    mutual = KAFKA.model_copy(update={"sasl_username": None, "ssl_certificate_location": "c.pem"})
    plain = KAFKA.model_copy(update={"sasl_username": None})

    assert [principal(kafka) for kafka in (KAFKA, oauth, plain)] == ["me", "scorer", "ANONYMOUS"]
    assert "--allow-principal 'User:<subject of the certificate>' " in acl_command(mutual, needed(mutual)[0])

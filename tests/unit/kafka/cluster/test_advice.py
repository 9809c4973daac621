"""What `check` warns of, and who must be allowed what."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from worker.kafka.client.membership import Membership
from worker.kafka.client.transactional_id import resolve_transactional_id
from worker.kafka.cluster.access import acl_command, missing, needed, needed_for_transactions, principal, wished
from worker.kafka.cluster.advice import advice, duration
from worker.kafka.cluster.examination import TopicFacts, Topics
from worker.kafka.cluster.survey import GroupFacts, Progress, Survey
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
TOPICS = Topics({"r": 6, "a": 6, "d": 1}, {"a": 1_048_588, "d": 1_048_588}, Membership("consumer", "", 45.0))


def topic(
    name: str, *, partitions: int = 6, replication: int = 3, config: Mapping[str, str] | None = None
) -> TopicFacts:
    setting = {"r": "REQUEST_TOPICS", "a": "RESPONSE_TOPIC", "d": "DEAD_LETTER_TOPIC"}[name]
    return TopicFacts(name, setting, partitions, replication, {**GOOD, **(config or {})})


def told(
    *topics: TopicFacts, kafka: KafkaSettings = KAFKA, progress: Progress | None = None, known: Topics = TOPICS
) -> list[str]:
    """The warnings on a cluster that is good but for these topics."""
    given = {one.name: one for one in (topic("r"), topic("a"), topic("d"), *topics)}
    group = GroupFacts("stable", 1, [] if progress is None else [progress])
    return [finding.text for finding in advice(kafka, Survey(["b:9093"], "b:9093", [*given.values()], group), known)]


def test_a_good_cluster_is_not_warned_of() -> None:
    """A reader who is warned of everything reads nothing."""
    assert told() == []
    assert told(progress=Progress("r", 6, 6, waiting=1000, expired=0)) == []


@pytest.mark.parametrize(
    ("odd", "warning"),
    [
        (topic("r", partitions=1), "topic r is of 1 partition: one replica gets all of it"),
        (topic("a", replication=1), "topic a is on one broker only (replication factor 1)"),
        (topic("a", config={"min.insync.replicas": "1"}), "topic a is at min.insync.replicas=1"),
        (topic("a", config={"min.insync.replicas": "3"}), "topic a is at min.insync.replicas equal to the replication"),
        (topic("a", config={"min.insync.replicas": "4"}), "topic a is at min.insync.replicas equal to the replication"),
        (topic("a", config={"cleanup.policy": "compact"}), "topic a is compacted: only the last record of each key"),
        (topic("r", config={"cleanup.policy": "compact,delete"}), "topic r is compacted: a request is dropped"),
        (topic("r", config={"retention.ms": "3600000"}), "topic r keeps requests for 1 hour: those that wait longer"),
        (topic("r", config={"max.message.bytes": "5000000"}), "topic r takes records of 5,000,000 bytes"),
        (topic("d", config={"max.message.bytes": "2000"}), "topic d takes records of 2,000 bytes, fewer than"),
    ],
)
def test_each_fact_that_may_be_regretted_is_one_warning(odd: TopicFacts, warning: str) -> None:
    """With what it means."""
    (line,) = told(odd)

    assert line.startswith(warning)


@pytest.mark.parametrize("codec", ["producer", "gzip", "zstd"])
def test_a_topic_of_large_batches_that_publishers_pack_is_warned_of(codec: str) -> None:
    """One of them may unpack to more than a container holds. At Kafka's own limit it fits."""
    roomy = KAFKA.model_copy(update={"max_request_bytes": 5_000_000})
    large = {"max.message.bytes": "5000000", "compression.type": codec}
    dead = topic("d", config={"max.message.bytes": "6000000"})

    (line,) = told(topic("r", config=large), dead, kafka=roomy)

    assert line.startswith(f"topic r takes batches of 5,000,000 bytes at compression.type={codec}, and one of them may")
    assert "5.2 GB" in line
    assert told(topic("r", config={"compression.type": codec})) == []


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "lz4"])
def test_a_topic_whose_broker_packs_batches_anew_is_not_warned_of(codec: str) -> None:
    """What it stores cannot unpack to much."""
    roomy = KAFKA.model_copy(update={"max_request_bytes": 5_000_000})
    large = {"max.message.bytes": "5000000", "compression.type": codec}

    assert told(topic("r", config=large), topic("d", config={"max.message.bytes": "6000000"}), kafka=roomy) == []


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"dead_letter_topic": None}, "WORKER_KAFKA__DEAD_LETTER_TOPIC is not set"),
        ({"insecure_tls": True}, "WORKER_KAFKA__INSECURE_TLS: anybody between us and the broker"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "WORKER_KAFKA__SECURITY_PROTOCOL: SASL_PLAINTEXT logs in"),
        ({"security_protocol": "PLAINTEXT", "allow_plaintext": True}, "WORKER_KAFKA__ALLOW_PLAINTEXT: requests"),
    ],
)
def test_settings_that_may_be_regretted_are_warned_of(changes: dict[str, object], warning: str) -> None:
    """Allowed is not the same as wise."""
    (line,) = told(kafka=KAFKA.model_copy(update=changes))

    assert line.startswith(warning)


def test_requests_that_were_lost_or_will_be_passed_over_are_counted() -> None:
    """By retention, or by where a new group begins."""
    fresh = Progress("r", 6, 2, waiting=0, expired=0)

    (expired,) = told(progress=Progress("r", 6, 6, waiting=0, expired=12_345))
    (latest,) = told(progress=fresh, kafka=KAFKA.model_copy(update={"auto_offset_reset": "latest"}))
    (error,) = told(progress=fresh, kafka=KAFKA.model_copy(update={"auto_offset_reset": "error"}))

    assert expired.startswith("topic r: 12,345 requests were deleted before the group answered them")
    assert "no offset for 4 of 6 partitions" in latest
    assert "requests that are there already will not be answered" in latest
    assert "a worker will stop there" in error


def test_a_new_group_is_told_of_the_backlog_that_it_will_answer() -> None:
    """Of a topic that another group has answered, it is all of it once more."""
    (line,) = told(progress=Progress("r", 6, 0, waiting=3060, expired=0))

    assert line == (
        "topic r: the group is new, and will answer all requests that are there already (3,060); with "
        "WORKER_KAFKA__AUTO_OFFSET_RESET=latest it answers only those that come after its start"
    )
    assert told(progress=Progress("r", 6, 0, waiting=0, expired=0)) == []
    assert told(progress=Progress("r", 6, 5, waiting=3060, expired=0)) == []


def test_a_group_that_answers_the_same_requests_is_warned_of() -> None:
    """Each request would have two answers, the second perhaps another model's."""
    found = Survey(["b:9093"], "b:9093", [topic("r"), topic("a"), topic("d")], None, {"other": "r"})

    assert [finding.text for finding in advice(KAFKA, found, TOPICS)] == [
        "group other also reads topic r, and answers each of its requests, too: a second model needs topics of its own"
    ]


def test_a_wish_of_the_broker_is_warned_of_with_the_line_that_grants_it() -> None:
    """Only while something is missed without it."""
    silent = TopicFacts("a", "RESPONSE_TOPIC", 6, 3, None)
    unknown = Topics(TOPICS.partitions, {"a": 1_000_000, "d": 1_048_588}, Membership("consumer", "", None))
    found = Survey(["b:9093"], "b:9093", [topic("r"), silent, topic("d")], None)

    limit, session = advice(KAFKA, found, unknown)
    (only,) = advice(KAFKA.model_copy(update={"max_message_bytes": 2_000_000}), found, unknown)

    assert limit.text.startswith("topic a: the broker does not tell its size limit, 1,000,000 bytes are assumed")
    assert limit.command == (
        "kafka-acls.sh --bootstrap-server b:9093 --add --allow-principal User:me --operation DescribeConfigs --topic a"
    )
    assert session.command.endswith("--operation DescribeConfigs --group g")
    assert only == session


def test_the_mock_cluster_is_not_warned_of_what_it_cannot_tell() -> None:
    """There is nothing to grant."""
    found = Survey(["b:9092"], None, [TopicFacts("a", "RESPONSE_TOPIC", 4, 3, None)], None)

    assert advice(KAFKA, found, TOPICS) == []


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


def test_transactional_ids_are_ruled_by_what_they_share() -> None:
    """Each replica has its own; one that is spelled out is ruled alone. Both are named when they are missing."""
    by_default = needed_for_transactions(resolve_transactional_id(None, "g"))
    by_host = needed_for_transactions(resolve_transactional_id("a-{hostname}", "g"))
    fixed = needed_for_transactions(resolve_transactional_id("fixed", "g"))

    assert [(right.name, right.is_prefix) for right in (by_default, by_host, fixed)] == [
        ("g-", True),
        ("a-", True),
        ("fixed", False),
    ]
    told = missing(KAFKA, by_default, "write")
    assert told.text == (
        "WORKER_DELIVERY__TRANSACTIONAL_ID: this client may not write transactional ids that begin with g-; grant it "
        "the operation WRITE"
    )
    assert told.command == (
        "kafka-acls.sh --bootstrap-server b:9093 --add --allow-principal User:me --operation Write "
        "--transactional-id g- --resource-pattern-type prefixed"
    )
    assert missing(KAFKA, fixed, "write").text == (
        "WORKER_DELIVERY__TRANSACTIONAL_ID: this client may not write transactional id fixed; grant it the operation "
        "WRITE"
    )


def test_the_principal_is_named_as_the_broker_most_likely_does() -> None:
    """And quoted where a shell would take it apart."""
    oauth = KAFKA.model_copy(update={"sasl_mechanism": "OAUTHBEARER", "oauth_client_id": "scorer"})
    mutual = KAFKA.model_copy(update={"sasl_username": None, "ssl_certificate_location": "c.pem"})
    plain = KAFKA.model_copy(update={"sasl_username": None})

    assert [principal(kafka) for kafka in (KAFKA, oauth, plain)] == ["me", "scorer", "ANONYMOUS"]
    assert "--allow-principal 'User:<subject of the certificate>' " in acl_command(mutual, needed(mutual)[0])


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(604_800_000, "7 days"), (86_400_000, "1 day"), (5_400_000, "90 minutes"), (1500, "1500 ms"), (0, "0 ms")],
)
def test_a_duration_is_told_in_the_largest_unit_that_divides_it(milliseconds: int, text: str) -> None:
    """People set round ones."""
    assert duration(milliseconds) == text

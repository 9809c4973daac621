"""What is asked of a real cluster before the group is joined, with and without access rules."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.contract.test_sink import collect, places
from tests.contract.test_source import MEMBERSHIPS, Told
from tests.kafka.broker import JvmBroker, Login, free_port
from tests.kafka.cluster import TIMEOUT, Cluster, Sent
from tests.kafka.fixtures import or_skip
from tests.kafka.test_source_sink import read, settings
from worker.core.failures import BadConfiguration, KafkaFatal
from worker.core.records import Message
from worker.kafka import KafkaSink, KafkaSource, examine
from worker.kafka.client.connecting import connect
from worker.kafka.cluster.admin_answers import known_requests
from worker.kafka.cluster.examination import judge
from worker.settings import KafkaSettings
from worker.tools.kafka.embedded import EmbeddedBroker

LOGGER = logging.getLogger("librdkafka")


def problems(kafka: KafkaSettings, timeout: float = 15.0) -> list[str]:
    """The lines with which the start is refused."""
    with pytest.raises(BadConfiguration) as refused:
        examine(kafka, LOGGER, timeout)
    return str(refused.value).splitlines()


def test_a_good_cluster_tells_partitions_limits_and_sessions(kafka: Cluster) -> None:
    """What the worker needs to know comes from the broker, not from guesses."""
    requests = kafka.create_topic("requests", partitions=3)
    answers = kafka.create_topic("answers", partitions=5, config={"max.message.bytes": "200000"})
    dead = kafka.create_topic("dead", config={"max.message.bytes": "5000"})

    topics = examine(settings(kafka, requests, response_topic=answers, dead_letter_topic=dead), LOGGER)

    assert topics.partitions == {requests: 3, answers: 5, dead: 1}
    assert topics.max_bytes == {answers: 200_000, dead: 5_000}
    assert (topics.largest_message, topics.largest_batch) == (200_000, 5_000)
    assert topics.membership.protocol == "consumer"
    assert topics.membership.takeover_seconds == 3.0
    assert topics.notes == ()


def test_a_compacted_topic_is_no_place_for_answers(kafka: Cluster) -> None:
    """Of the topics that are written to: what is under a key already goes when more comes."""
    compacted = {"cleanup.policy": "compact,delete"}
    requests, dead = kafka.create_topic("requests", config=compacted), kafka.create_topic("dead")
    answers = kafka.create_topic("answers", config=compacted)

    topics = examine(settings(kafka, requests, response_topic=answers, dead_letter_topic=dead), LOGGER)

    (note,) = topics.notes
    assert note.startswith(f"topic {answers} is compacted: only the last record of each key is kept, and all without")
    assert topics.compacted == {answers}


def test_a_lone_replica_is_no_place_for_transactions(kafka: Cluster) -> None:
    """Of the topics that are written to, and only where transactions are."""
    requests, answers = kafka.create_topic("requests"), kafka.create_topic("answers")
    config = settings(kafka, requests, response_topic=answers)

    (note,) = examine(config, LOGGER, with_transactions=True).notes

    assert note.startswith(f"topic {answers} has one replica: ")
    assert examine(config, LOGGER).notes == ()


def test_every_missing_topic_is_named_at_once(kafka: Cluster) -> None:
    """One start shows all there is to mend, and makes no topic."""
    config = settings(kafka, "nothing-1", response_topic="nothing-2", dead_letter_topic="nothing-3")

    lines = problems(config)

    making = "let `inference-worker check --create-topics` make it, or name another"
    assert lines == [
        f"WORKER_KAFKA__REQUEST_TOPICS: there is no topic nothing-1; {making}",
        f"WORKER_KAFKA__RESPONSE_TOPIC: there is no topic nothing-2; {making}",
        f"WORKER_KAFKA__DEAD_LETTER_TOPIC: there is no topic nothing-3; {making}",
    ]
    assert not {"nothing-1", "nothing-2", "nothing-3"} & set(kafka.admin.list_topics(timeout=TIMEOUT).topics)


def test_a_mistyped_topic_is_guessed(kafka: Cluster) -> None:
    """From the cluster's own list, the nearest first (other tests' topics may be near, too); beside what makes it."""
    requests, answers = kafka.create_topic("claims-to-score"), kafka.create_topic("answers")
    config = settings(kafka, requests.replace("claims", "clams"), response_topic=answers)

    [line] = problems(config)

    assert f"`inference-worker check --create-topics` make it, or name another; did you mean {requests}" in line


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_changelog_that_deletes_states_is_refused(kafka: Cluster, policy: str) -> None:
    """Only a compacted one keeps the last state of each key; the line that mends it comes along."""
    requests, answers = kafka.create_topic("requests", partitions=2), kafka.create_topic("answers")
    states = kafka.create_topic("states", partitions=2, config={"cleanup.policy": policy})
    config = settings(kafka, requests, response_topic=answers, changelog_topic=states)

    verdict = judge(config, connect(config, LOGGER, TIMEOUT, answers))

    (problem,) = verdict.problems
    assert f"{states} has cleanup.policy={policy}, which deletes the states" in problem.text
    assert problem.command.endswith(
        f"--entity-name {states} --add-config cleanup.policy=compact,min.compaction.lag.ms=3600000"
    )


def test_a_missing_topic_comes_with_the_line_that_creates_it(kafka: Cluster) -> None:
    """Ready to paste, beside the sentence."""
    config = settings(kafka, "nothing-1", response_topic="nothing-2")

    found = judge(config, connect(config, LOGGER, 15.0, "nothing-2")).problems

    create = f"kafka-topics.sh --bootstrap-server {config.bootstrap_servers.split(',')[0]} --create --topic"
    assert [problem.command for problem in found] == [
        f"{create} nothing-1 --partitions 12",
        f"{create} nothing-2 --partitions 12",
    ]


def test_a_broker_that_does_not_answer_is_named_with_the_reason() -> None:
    """The address, what the client met there, and what to look at."""
    port = free_port()
    nobody = KafkaSettings(
        bootstrap_servers=f"127.0.0.1:{port}", request_topics=("r",), response_topic="a", group_id="g"
    )

    (line,) = problems(nobody, timeout=0.5)

    assert line.startswith(
        f"WORKER_KAFKA__BOOTSTRAP_SERVERS: nothing listens at 127.0.0.1:{port} (connection refused); start the broker"
    )


def test_an_unknown_client_key_is_refused() -> None:
    """A mistyped key of librdkafka's is a line, not a stack trace."""
    kafka = KafkaSettings(
        bootstrap_servers="127.0.0.1:1",
        request_topics=("r",),
        response_topic="a",
        group_id="g",
        config={"lingre.ms": "1", "acks": "0"},
    )

    (line,) = problems(kafka)
    assert line.startswith("WORKER_KAFKA__CONFIG: acks is not passed through, nothing is lost")
    (line,) = problems(kafka.model_copy(update={"config": {"lingre.ms": "1"}}))
    assert line.startswith("WORKER_KAFKA__CONFIG: the Kafka client refuses its configuration: ")
    assert "lingre.ms" in line


def test_the_mock_cluster_is_good_enough() -> None:
    """It answers no administrative request; what it does not tell is assumed, and noted."""
    with EmbeddedBroker() as broker:
        for topic in ("requests", "answers"):
            broker.create_topic(topic)
        kafka = KafkaSettings(
            bootstrap_servers=broker.bootstrap_servers,
            request_topics=("requests",),
            response_topic="answers",
            group_id="g",
        )

        topics = examine(kafka, LOGGER)
        told = examine(kafka.model_copy(update={"max_message_bytes": 5000}), LOGGER)

    assert topics.partitions == {"requests": 4, "answers": 4}
    assert topics.max_bytes == {"answers": 1_000_000}
    assert [note.partition(",")[0] for note in topics.notes] == [
        "the broker does not tell the size limit of topic answers"
    ]
    assert told.max_bytes == {"answers": 5000}
    assert told.notes == ()


def test_exactly_once_is_refused_on_the_mock_cluster() -> None:
    """What was taken back is read there all the same."""
    with EmbeddedBroker() as broker:
        kafka = KafkaSettings(
            bootstrap_servers=broker.bootstrap_servers,
            request_topics=("requests",),
            response_topic="answers",
            group_id="g",
        )
        for topic in ("requests", "answers"):
            broker.create_topic(topic)

        with pytest.raises(BadConfiguration) as refused:
            examine(kafka, LOGGER, with_transactions=True)

    assert str(refused.value) == (
        "WORKER_DELIVERY__GUARANTEE: exactly_once does not hold on this cluster: it is librdkafka's mock, which "
        "takes no transaction back; use a real Kafka, or set at_least_once"
    )


def test_exactly_once_is_welcome_on_a_real_cluster(kafka: Cluster) -> None:
    """It has a controller, and is younger than Kafka 2.5."""
    requests, answers = kafka.create_topic("requests"), kafka.create_topic("answers")
    asked = settings(kafka, requests, response_topic=answers)

    topics = examine(asked, LOGGER, with_transactions=True)

    assert topics.partitions == {requests: 1, answers: 1}
    assert known_requests(asked, answers, 10.0)[28] >= 3


# Access rules: SASL/PLAIN, one administrator, and a worker that may what it is granted and nothing else.

USERS = {"admin": "admin-secret", "worker": "worker-secret"}
SECURE = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret" '
        + " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        + ";"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}


ADMINISTRATOR: Login = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": USERS["admin"],
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    """A broker with access rules, seen by its administrator."""
    with or_skip(lambda: JvmBroker(SECURE, ADMINISTRATOR)) as broker:
        yield Cluster(broker.bootstrap_servers, ADMINISTRATOR)


def test_exactly_the_documented_access_is_enough(guarded: Cluster) -> None:
    """READ on request topics and group, WRITE on response and dead-letter topics: nothing else is needed."""
    requests, answers, dead = (guarded.create_topic(name) for name in ("requests", "answers", "dead"))
    kafka = worker_settings(guarded, requests, answers, dead)
    grant(guarded.admin, {requests: AclOperation.READ, answers: AclOperation.WRITE, dead: AclOperation.WRITE})
    grant(guarded.admin, {kafka.group_id: AclOperation.READ}, ResourceType.GROUP)
    guarded.produce(requests, [Sent(b"k", b"v")])

    topics = examine(kafka, LOGGER)
    source, sink = KafkaSource(kafka, topics.membership, LOGGER), KafkaSink(kafka, topics, LOGGER)
    source.subscribe(Told())
    (record,) = read(source, 1)
    sink.send([Message(answers, b"k", record.value, [], 0)], places(1)[0])
    collect(sink, 1)

    assert len(topics.notes) == 2, "the size limits are assumed"
    assert guarded.read(answers, 1)[0].value == b"v"
    sink.close(1.0)
    source.close()


def test_each_missing_access_is_named(guarded: Cluster) -> None:
    """What may not be done, to what, and which operation to grant."""
    requests, answers, dead = (guarded.create_topic(name) for name in ("requests", "answers", "dead"))
    kafka = worker_settings(guarded, requests, answers, dead)
    grant(guarded.admin, {requests: AclOperation.WRITE, answers: AclOperation.READ})

    unseen = problems(kafka)
    grant(guarded.admin, {dead: AclOperation.DESCRIBE})
    grant(guarded.admin, {kafka.group_id: AclOperation.DESCRIBE}, ResourceType.GROUP)
    lines = problems(kafka)

    assert unseen == [
        f"WORKER_KAFKA__DEAD_LETTER_TOPIC: this client may not see topic {dead}; grant it the operation WRITE",
        f"WORKER_KAFKA__REQUEST_TOPICS: this client may not read topic {requests}; grant it the operation READ",
        f"WORKER_KAFKA__RESPONSE_TOPIC: this client may not write topic {answers}; grant it the operation WRITE",
        f"WORKER_KAFKA__GROUP_ID: this client may not read group {kafka.group_id}; grant it the operation READ",
    ]
    assert lines == [
        f"WORKER_KAFKA__REQUEST_TOPICS: this client may not read topic {requests}; grant it the operation READ",
        f"WORKER_KAFKA__RESPONSE_TOPIC: this client may not write topic {answers}; grant it the operation WRITE",
        f"WORKER_KAFKA__DEAD_LETTER_TOPIC: this client may not write topic {dead}; grant it the operation WRITE",
        f"WORKER_KAFKA__GROUP_ID: this client may not read group {kafka.group_id}; grant it the operation READ",
    ]


def test_a_group_that_may_not_be_joined_stops_the_worker(guarded: Cluster) -> None:
    """A consumer that is kept out of its group says so; it does not idle for ever."""
    requests, answers, dead = (guarded.create_topic(name) for name in ("requests", "answers", "dead"))
    kafka = worker_settings(guarded, requests, answers, dead)
    grant(guarded.admin, {requests: AclOperation.READ})
    source = KafkaSource(kafka, MEMBERSHIPS["kafka-consumer"], LOGGER)
    source.subscribe(Told())

    with pytest.raises(KafkaFatal, match="grant this client READ on the group"):
        read(source, 1)

    source.close()


def test_a_wrong_password_is_named(guarded: Cluster) -> None:
    """The reason comes from the broker; the password is not shown."""
    kafka = worker_settings(guarded, "requests", "answers", "dead").model_copy(update={"sasl_username": "intruder"})

    (line,) = problems(kafka)

    assert "does not accept the PLAIN login of user intruder" in line
    assert USERS["worker"] not in line


def worker_settings(cluster: Cluster, requests: str, answers: str, dead: str) -> KafkaSettings:
    """The worker's own login."""
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "worker",
        "sasl_password": USERS["worker"],
    }
    return settings(cluster, requests, response_topic=answers, dead_letter_topic=dead, **login)


def grant(admin: AdminClient, operations: Mapping[str, AclOperation], kind: ResourceType = ResourceType.TOPIC) -> None:
    """Allow the worker these operations, and return when the broker knows."""
    bindings = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:worker", "*", operation, AclPermissionType.ALLOW)
        for name, operation in operations.items()
    ]
    for future in admin.create_acls(bindings).values():
        future.result(TIMEOUT)

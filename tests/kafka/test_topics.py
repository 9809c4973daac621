"""What is asked of a real cluster before the group is joined; `test_security.py` has those with access rules."""

from __future__ import annotations

import logging

import pytest

from tests.kafka.cluster import TIMEOUT, Cluster
from tests.kafka.test_source_sink import settings
from worker.core.failures import BadConfiguration
from worker.kafka.cluster.examination import examine
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
    """Nor for requests: what is under a key already goes when more comes."""
    compacted = {"cleanup.policy": "compact,delete"}
    requests, dead = kafka.create_topic("requests", config=compacted), kafka.create_topic("dead")
    answers = kafka.create_topic("answers", config=compacted)

    topics = examine(settings(kafka, requests, response_topic=answers, dead_letter_topic=dead), LOGGER)

    assert [note.partition(":")[0] for note in topics.notes] == [
        f"topic {topic} is compacted" for topic in (requests, answers)
    ]
    assert topics.compacted == {answers}, "of those that are written to"


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
    """Only a compacted one keeps the last state of each key."""
    requests, answers = kafka.create_topic("requests", partitions=2), kafka.create_topic("answers")
    states = kafka.create_topic("states", partitions=2, config={"cleanup.policy": policy})
    config = settings(kafka, requests, response_topic=answers, changelog_topic=states)

    (line,) = problems(config)

    assert f"{states} has cleanup.policy={policy}, which deletes the states" in line


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

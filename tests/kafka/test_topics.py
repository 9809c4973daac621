"""The checks of a real cluster before a worker joins its group; `test_security.py` tests access rules."""

from __future__ import annotations

import logging

import pytest

from tests.kafka.cluster import TIMEOUT, Cluster
from tests.kafka.test_source_sink import settings
from worker.core.failures import BadConfiguration
from worker.kafka.cluster.examination import examine
from worker.settings import KafkaSettings

LOGGER = logging.getLogger("librdkafka")


def problems(kafka: KafkaSettings, timeout: float = 15.0) -> list[str]:
    """The lines of the start's error."""
    with pytest.raises(BadConfiguration) as refused:
        examine(kafka, LOGGER, timeout)
    return str(refused.value).splitlines()


def test_a_good_cluster_tells_partitions_limits_and_sessions(kafka: Cluster) -> None:
    """The worker asks the broker and does not guess."""
    requests = kafka.create_topic("requests", partitions=3)
    answers = kafka.create_topic("answers", partitions=5, config={"max.message.bytes": "200000"})
    dead = kafka.create_topic("dead", config={"max.message.bytes": "5000"})

    topics = examine(settings(kafka, requests, response_topic=answers, dead_letter_topic=dead), LOGGER)

    assert topics.partitions == {requests: 3, answers: 5, dead: 1}
    assert topics.max_bytes == {answers: 200_000, dead: 5_000}
    assert (topics.largest_message, topics.largest_batch) == (200_000, 5_000)
    assert topics.membership.protocol == "consumer"
    assert topics.notes == ()


def test_every_missing_topic_is_named_at_once(kafka: Cluster) -> None:
    """One start names every missing topic, and makes none."""
    config = settings(kafka, "nothing-1", response_topic="nothing-2", dead_letter_topic="nothing-3")

    lines = problems(config)

    making = "let `inference-worker check --create-topics` make it, or name another"
    assert lines == [
        f"WORKER_KAFKA__REQUEST_TOPICS: there is no topic nothing-1; {making}",
        f"WORKER_KAFKA__RESPONSE_TOPIC: there is no topic nothing-2; {making}",
        f"WORKER_KAFKA__DEAD_LETTER_TOPIC: there is no topic nothing-3; {making}",
    ]
    assert not {"nothing-1", "nothing-2", "nothing-3"} & set(kafka.admin.list_topics(timeout=TIMEOUT).topics)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_changelog_that_deletes_states_is_refused(kafka: Cluster, policy: str) -> None:
    """Only a compacted changelog keeps the last state of each key."""
    requests, answers = kafka.create_topic("requests", partitions=2), kafka.create_topic("answers")
    states = kafka.create_topic("states", partitions=2, config={"cleanup.policy": policy})
    config = settings(kafka, requests, response_topic=answers, changelog_topic=states)

    (line,) = problems(config)

    assert f"{states} has cleanup.policy={policy}, which deletes the states" in line

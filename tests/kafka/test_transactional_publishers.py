"""Requests published in transactions: aborted ones are not answered, and no lag stays behind them."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from tests.kafka.cluster import TIMEOUT, Cluster, fresh
from tests.kafka.scene import Scene, quick_exactly_once, raw

PARTITIONS = 4


def transaction(kafka: Cluster, topic: str, first: int, *, is_aborted: bool) -> None:
    """Publish two requests for each partition in one transaction."""
    producer = Producer({**kafka.login, "transactional.id": fresh("publisher")})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    for number in range(first, first + 2 * PARTITIONS):
        sent = raw(number)
        producer.produce(topic, sent.value, sent.key, number % PARTITIONS, headers=list(sent.headers))
    producer.flush()
    if is_aborted:
        producer.abort_transaction(TIMEOUT)
    else:
        producer.commit_transaction(TIMEOUT)


@quick_exactly_once
def test_the_group_comes_to_the_end_behind_transactions(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Markers and aborted records are no requests: a lasting lag would keep replicas scaled up."""
    with Scene(kafka, tmp_path, guarantee=guarantee, partitions=PARTITIONS) as scene:
        transaction(kafka, scene.topic, 0, is_aborted=True)  # the group has no offset yet
        replica = scene.replica()
        scene.expect_all_committed()

        transaction(kafka, scene.topic, 8, is_aborted=False)
        scene.auditor.wait_for_count(8)
        scene.expect_all_committed()

        transaction(kafka, scene.topic, 16, is_aborted=True)
        scene.expect_all_committed()

        replica.terminate()
        assert replica.exit_code() == 0, replica.log
        transaction(kafka, scene.topic, 24, is_aborted=True)
        scene.replica()
        scene.expect_all_committed()
        assert len(scene.auditor.answers) == 8

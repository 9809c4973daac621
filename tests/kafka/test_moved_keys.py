"""Added partitions move keys that have states: the workers stop, and no state is lost at random."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import NewPartitions

from tests.kafka.cluster import TIMEOUT, Cluster
from tests.kafka.test_state import StatefulScene, number

KEYS = [b"key-%d" % at for at in range(40)]


def test_workers_stop_when_the_request_topic_gets_partitions(kafka: Cluster, tmp_path: Path) -> None:
    """All workers stop, not only the one with a new partition: keys move to old partitions, too."""
    with StatefulScene(kafka, tmp_path, partitions=2) as scene:
        replicas = scene.replicas(2)
        scene.publish([number(1.0, key) for key in KEYS])
        scene.answers()

        kafka.admin.create_partitions([NewPartitions(scene.topic, 4)])[scene.topic].result(TIMEOUT)

        assert [replica.exit_code() for replica in replicas] == [2, 2]
        assert all(
            "has 4 partitions now" in replica.log or "has 3 partitions now" in replica.log for replica in replicas
        )
        assert scene.start().exit_code() == 2

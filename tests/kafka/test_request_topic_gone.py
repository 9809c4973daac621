"""A request topic that is deleted while workers read it: they say so, are not ready, and read the new one."""

from __future__ import annotations

import time
from pathlib import Path

from tests.kafka.cluster import Cluster
from tests.kafka.replica import Replica
from tests.kafka.scene import Scene, quick_at_least_once, quick_classic, quick_exactly_once, raw

# The client checks a classic group without traffic every 30 s; with traffic every 5.
SOON = 50.0
REQUESTS = 400


def staged(kafka: Cluster, folder: Path, guarantee: str, protocol: str, topics: int = 1) -> Scene:
    settings = {"KAFKA__GROUP_PROTOCOL": protocol}
    return Scene(kafka, folder, settings, guarantee=guarantee, partitions=2, request_topics=topics)


def publish(scene: Scene, topic: str) -> None:
    scene.publish([raw(number, key=b"%d" % number) for number in range(REQUESTS)], topic)


def wait_until_reported(replica: Replica, topic: str) -> None:
    """Wait until its client has said, as it does every second, that it reads the topic."""
    deadline = time.monotonic() + SOON
    while not any(topic in line for line in replica.text("/metrics").splitlines() if "consumer_lag{" in line):
        assert time.monotonic() < deadline, replica.log
        time.sleep(0.05)


def wait_until_unready(replica: Replica, topic: str) -> None:
    deadline = time.monotonic() + SOON
    while replica.status("/readyz") == 200:
        assert time.monotonic() < deadline, replica.log
        time.sleep(0.05)
    assert replica.text("/readyz") == f"the cluster has no topic {topic}\n"


@quick_classic
@quick_exactly_once
def test_a_deleted_topic_is_told_at_once_and_its_successor_is_read(
    kafka: Cluster, tmp_path: Path, guarantee: str, protocol: str
) -> None:
    """The new topic is read whole and committed: no offset of the old one is applied to it."""
    with staged(kafka, tmp_path, guarantee, protocol, topics=2) as scene:
        replica = scene.replica()
        gone, other = scene.topics
        publish(scene, gone)
        publish(scene, other)
        scene.answers()
        scene.expect_all_committed()
        wait_until_reported(replica, gone)

        kafka.delete_topic(gone)

        wait_until_unready(replica, gone)
        assert f'"request_topics_gone", "topics": ["{gone}"]' in replica.log
        settled = replica.metric("inference_worker_records_settled_total")
        publish(scene, other)
        replica.wait_until_settled(int(settled) + REQUESTS)

        kafka.make_topic(gone, 2)
        publish(scene, gone)
        replica.wait_until_ready(SOON)
        replica.wait_until_settled(int(settled) + 2 * REQUESTS)
        assert "request_topics_back" in replica.log
        scene.expect_all_committed()
        replica.terminate()
        assert replica.exit_code() == 0, replica.log


@quick_at_least_once
@quick_classic
def test_a_worker_whose_topic_was_deleted_under_it_stops_in_good_order(
    kafka: Cluster, tmp_path: Path, guarantee: str, protocol: str
) -> None:
    """Requests answered but no longer committable do not hold up its stop."""
    with staged(kafka, tmp_path, guarantee, protocol) as scene:
        replica = scene.replica()
        with scene.publishing(500.0):
            scene.wait_for_progress(10)
        kafka.delete_topic(scene.topic)
        wait_until_unready(replica, scene.topic)

        replica.terminate()

        assert replica.exit_code() == 0, replica.log

"""Overload, and topics that change under a worker: pressure, backlogs, partitions, transactions, retention."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from confluent_kafka.admin import NewPartitions

from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import MORTAL, TIMEOUT, Cluster, Sent
from tests.kafka.scene import (
    RAW_HEADER,
    Scene,
    quick_at_least_once,
    quick_exactly_once,
    raw,
)
from tests.kafka.spins import spin, turns
from tests.models import mlp, spinner

MIB = 1024 * 1024


def slow(number: int, partition: int = -1) -> Sent:
    """A request whose batch takes about 20 ms; the answer is its number of turns."""
    return Sent(b"key-%d" % (number % 97), np.int64(turns(0.02) + number % 50).tobytes(), [RAW_HEADER], partition)


def expect_own_turns(scene: Scene) -> None:
    """Fail the test unless each answer is its request's number of turns."""
    for found in scene.answers():
        assert found.source is not None
        value = scene.acknowledged[found.source].value
        assert np.frombuffer(found.value or b"", "<f4")[0] == np.frombuffer(value or b"", "<i8")[0], found


@quick_at_least_once
def test_a_replica_that_joins_a_full_one_takes_its_share(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """The in-flight bound pauses fetching, partitions move, then all is answered once and in order."""
    settings = {"BATCHING__MAX_INFLIGHT_RECORDS": "64"}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=spinner()) as scene:
        first = scene.replica()
        scene.publish([slow(n) for n in range(6000)])
        first.wait_until_taken(64)

        scene.replica()

        scene.verdict(90.0).expect_clean()
        expect_own_turns(scene)
        scene.expect_all_committed()


@quick_exactly_once
def test_a_worker_with_a_backlog_stops_soon(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """SIGTERM finishes taken requests, not the backlog; the next worker goes on, and nothing comes twice."""
    with Scene(
        kafka, tmp_path, {"BATCHING__MAX_INFLIGHT_RECORDS": "200"}, guarantee=guarantee, model=spinner(), partitions=2
    ) as scene:
        scene.publish([slow(n) for n in range(4000)])
        first = scene.replica()
        scene.wait_for_progress(50)

        first.terminate()

        assert first.exit_code() == 0, first.log
        assert len(scene.auditor.answers) < len(scene.acknowledged), "it worked the backlog off, or there was none"
        scene.replica()
        scene.verdict().expect_clean()
        expect_own_turns(scene)


@quick_exactly_once
def test_new_partitions_are_picked_up(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Requests of partitions that were added later are answered, like requests of the first partition."""
    metadata = {"KAFKA__CONFIG": '{"topic.metadata.refresh.interval.ms": "1000", "metadata.max.age.ms": "2000"}'}
    with Scene(kafka, tmp_path, metadata, guarantee=guarantee, partitions=1) as scene:
        scene.replica()
        scene.publish([raw(n, key=b"k", partition=0) for n in range(50)])
        scene.verdict().expect_clean()

        grown = kafka.admin.create_partitions([NewPartitions(scene.topic, 3)])
        grown[scene.topic].result(TIMEOUT)
        scene.publish([raw(n, key=b"k%d" % n, partition=n % 3) for n in range(50, 200)])

        scene.verdict().expect_clean()
        scene.expect_right_values()


@quick_at_least_once
def test_requests_that_retention_took_are_passed_over(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """The group's offset points at deleted records: the worker says so and answers the remaining ones."""
    with Scene(kafka, tmp_path, guarantee=guarantee, partitions=1) as scene:
        first = scene.replica()
        scene.publish([raw(n, key=b"k") for n in range(20)])
        scene.answers()
        first.terminate()
        assert first.exit_code() == 0
        owed = scene.publish([raw(n, key=b"k") for n in range(20, 100)])
        kafka.delete_records(scene.topic, 0, before=60)
        for position in [position for position in owed if position.offset < 60]:
            del scene.acknowledged[position]

        second = scene.replica()

        scene.verdict().expect_clean()
        scene.expect_all_committed()
        second.wait_until_counted("inference_worker_requests_deleted_total", 40)
        assert '"first": 20, "last": 59, "offsets": 40' in second.log, second.log


@quick_exactly_once
def test_requests_that_retention_took_stop_a_worker_that_asked_for_it(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """With AUTO_OFFSET_RESET=error: exit 4, with the deleted place in the log, and nothing answered."""
    with Scene(kafka, tmp_path, {"KAFKA__AUTO_OFFSET_RESET": "error"}, guarantee=guarantee, partitions=1) as scene:
        first = scene.start({"KAFKA__AUTO_OFFSET_RESET": "earliest"}).wait_until_ready()
        scene.publish([raw(n, key=b"k") for n in range(20)])
        scene.answers()
        first.terminate()
        assert first.exit_code() == 0
        scene.publish([raw(n, key=b"k") for n in range(20, 100)])
        kafka.delete_records(scene.topic, 0, before=60)

        second = scene.start()

        assert second.exit_code() == 4, second.log
        assert "AUTO_OFFSET_RESET" in second.log
        assert scene.committed() == {0: 20}
        assert len(scene.auditor.answers) == 20


@quick_at_least_once
def test_a_response_topic_that_vanishes_stops_the_worker(
    hurt_broker: JvmBroker, tmp_path: Path, guarantee: str
) -> None:
    """Unanswered requests are not committed: the worker ends, and answers them once the topic is back."""
    cluster = Cluster(hurt_broker.bootstrap_servers)
    metadata = {"KAFKA__CONFIG": '{"topic.metadata.propagation.max.ms": "1000", "metadata.max.age.ms": "2000"}'}
    with Scene(cluster, tmp_path, metadata, guarantee=guarantee, partitions=1, session=MORTAL) as scene:
        answers = cluster.create_topic("vanishing")
        replica = scene.start({"KAFKA__RESPONSE_TOPIC": answers}).wait_until_ready()
        scene.publish([raw(n, key=b"k") for n in range(10)])
        cluster.read(answers, 10)
        scene.acknowledged.clear()
        scene.expect_all_committed()

        cluster.delete_topic(answers)
        scene.publish([raw(n, key=b"k") for n in range(10)])

        assert replica.exit_code(60.0) == 4, replica.log
        assert scene.committed() == {0: 10}
        scene.replica()
        scene.verdict().expect_clean()


@quick_at_least_once
def test_inferences_longer_than_the_poll_interval_lose_no_partition(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """One takes eight seconds; Kafka gives up a member that does not poll for six, but it polls meanwhile."""
    settings = {
        "KAFKA__GROUP_PROTOCOL": "classic",
        "KAFKA__SESSION_TIMEOUT_MS": "6000",
        "KAFKA__CONFIG": '{"max.poll.interval.ms": "6000"}',
        "BATCHING__MAX_BATCH_SIZE": "1",
    }
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=spinner(), partitions=1) as scene:
        replica = scene.replica()

        scene.publish([spin(8.0)])

        scene.expect_kept()
        assert replica.metric("inference_worker_rebalances_total", event="lost") == 0


@quick_at_least_once
def test_a_backlog_does_not_fill_the_memory(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """150 MB wait for a slow model; the worker keeps only its prefetch and its in-flight bound in memory."""
    model = mlp(256, (2048, 2048, 2048), 16)
    settings = {"BATCHING__MAX_INFLIGHT_BYTES": str(4 * MIB), "BATCHING__MAX_BATCH_BYTES": str(MIB)}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=model) as scene:
        replica = scene.replica()
        base = replica.peak_rss
        value = np.random.default_rng(1).standard_normal(256, np.float32).tobytes()
        kafka.produce(scene.topic, (Sent(b"%d" % n, value, [RAW_HEADER]) for n in range(150_000)))

        time.sleep(4.0)

        # 32 MiB of prefetch, a fetch of 16 MiB being unpacked, 4 MiB in flight as record, row and batch, answers.
        assert replica.peak_rss - base < 100 * MIB, f"{base / MIB:.0f} MiB, then {replica.peak_rss / MIB:.0f} MiB"
        assert sum(kafka.end_offsets(scene.response_topic).values()) < 140_000, "there was no backlog any more"

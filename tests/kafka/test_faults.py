"""Processes die, members come and go, the broker restarts: nothing is lost, order holds, repeats stay within bounds."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.kafka.broker import JvmBroker
from tests.kafka.checker import Verdict
from tests.kafka.cluster import Cluster
from tests.kafka.publisher import Acknowledged
from tests.kafka.replica import Replica
from tests.kafka.scene import Scene

RATE = 1000.0  # requests per second
INFLIGHT = 500
COMMIT_INTERVAL = 0.2  # seconds
# What one death may repeat: what was answered and not yet committed.
REPEATS_PER_DEATH = int(INFLIGHT + COMMIT_INTERVAL * RATE)
TUNED = {
    "BATCHING__MAX_INFLIGHT_RECORDS": str(INFLIGHT),
    "DELIVERY__COMMIT_INTERVAL_MS": str(int(COMMIT_INTERVAL * 1000)),
}
# A dead member is noticed after 3 s: the test brokers' setting for KIP-848, and ours for classic groups.
PROTOCOLS = {
    "consumer": {"KAFKA__GROUP_PROTOCOL": "consumer"},
    "classic": {"KAFKA__GROUP_PROTOCOL": "classic", "KAFKA__SESSION_TIMEOUT_MS": "3000"},
}
both_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


def with_protocol(protocol: str) -> pytest.MarkDecorator:
    """This one each time; the other with the long runs."""
    marks = {name: () if name == protocol else (pytest.mark.slow,) for name in PROTOCOLS}
    return pytest.mark.parametrize("protocol", [pytest.param(name, marks=marks[name]) for name in PROTOCOLS])


def kill_under_load(scene: Scene, kills: int) -> Verdict:
    """Two replicas under load; so many times one that has settled 200 answers dies by kill -9 and is replaced."""
    replicas = scene.replicas(2)
    with scene.publishing(RATE) as load:
        for _ in range(kills):
            scene.wait_for_progress(200)
            replicas.pop(random.randrange(2)).kill()
            replicas += scene.replicas(1)
        scene.wait_for_progress(50)
        load.stop()
    verdict = scene.verdict()
    scene.expect_right_values()
    scene.expect_all_committed()
    return verdict


def restart_under_load(scene: Scene, restarts: int) -> Verdict:
    """Two replicas under load; so many times a new one joins and the oldest leaves by SIGTERM, with exit code 0."""
    replicas = scene.replicas(2)
    with scene.publishing(RATE) as load:
        for _ in range(restarts):
            scene.wait_for_progress(100)
            replicas.append(scene.start().wait_until_ready())
            oldest = replicas.pop(0)
            oldest.terminate()
            assert oldest.exit_code() == 0, oldest.log
            scene.wait_for_members(2)
        load.stop()
    verdict = scene.verdict()
    scene.expect_right_values()
    scene.expect_all_committed()
    return verdict


@both_protocols
def test_nothing_is_lost_when_a_replica_is_killed(kafka: Cluster, tmp_path: Path, protocol: str) -> None:
    """kill -9 under load: the other replica takes over; repeats are at most what was not committed."""
    with Scene(kafka, tmp_path, TUNED | PROTOCOLS[protocol]) as scene:
        kill_under_load(scene, 1).expect_clean(repeats=REPEATS_PER_DEATH)


@with_protocol("classic")
def test_a_rolling_restart_repeats_nothing(kafka: Cluster, tmp_path: Path, protocol: str) -> None:
    """Each of two replicas is replaced under load by SIGTERM: nothing lost, nothing answered twice, both exit 0."""
    with Scene(kafka, tmp_path, TUNED | PROTOCOLS[protocol]) as scene:
        restart_under_load(scene, 2).expect_clean()


@with_protocol("consumer")
def test_a_rebalance_storm_loses_and_repeats_nothing(kafka: Cluster, tmp_path: Path, protocol: str) -> None:
    """A member that joins and leaves all the time takes partitions and gives them back, while two replicas answer."""
    with Scene(kafka, tmp_path, TUNED | PROTOCOLS[protocol]) as scene:
        scene.replicas(2)
        with scene.publishing(RATE) as load:
            for _ in range(5):
                visit(scene, protocol, seconds=0.8)
                time.sleep(0.4)
            load.stop()

        scene.verdict().expect_clean()
        scene.expect_right_values()
        scene.expect_all_committed()


def visit(scene: Scene, protocol: str, seconds: float) -> None:
    """A plain consumer in the workers' group, for a while; it answers nothing and commits nothing."""
    config = {
        "bootstrap.servers": scene.kafka.bootstrap_servers,
        "group.id": scene.group,
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    # One that leaves in the middle of a classic rebalance is missed only after its session.
    classic = {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": "3000",
        "heartbeat.interval.ms": "500",
    }
    visitor = Consumer(config | (classic if protocol == "classic" else {}))
    visitor.subscribe(scene.topics)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        visitor.poll(0.05)
    visitor.close()


@with_protocol("classic")
def test_a_replica_that_was_given_up_does_no_harm_when_it_wakes(kafka: Cluster, tmp_path: Path, protocol: str) -> None:
    """SIGSTOP past the session timeout, then SIGCONT: the sleeper's partitions have moved; it commits none of them."""
    with Scene(kafka, tmp_path, TUNED | PROTOCOLS[protocol]) as scene:
        sleeper, _ = scene.replicas(2)
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(100)
            sleeper.suspend()
            scene.wait_for_members(1)
            scene.wait_for_progress(100)
            sleeper.resume()
            scene.wait_for_members(2)
            scene.wait_for_progress(50)
            load.stop()

        scene.verdict().expect_clean(repeats=REPEATS_PER_DEATH)
        scene.expect_right_values()
        scene.expect_all_committed()
        assert sleeper.is_running


@pytest.mark.parametrize("way", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
def test_a_broker_restart_loses_nothing(own_broker: JvmBroker, tmp_path: Path, way: str) -> None:
    """The broker goes away under load and comes back: the worker waits, goes on, and still runs."""
    with Scene(Cluster(own_broker.bootstrap_servers), tmp_path, TUNED) as scene:
        replica = scene.replica()
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(100)
            getattr(own_broker, way)()
            time.sleep(1.5)
            assert replica.status("/healthz") == 200, "a broker that is away is no reason to restart"
            own_broker.start()
            scene.wait_for_progress(200)
            load.stop()

        scene.verdict().expect_clean(repeats=REPEATS_PER_DEATH)
        scene.expect_right_values()
        expect_clean_exit(scene, replica, load.acknowledged)


def expect_clean_exit(scene: Scene, replica: Replica, owed: Acknowledged) -> None:
    """It runs, ends well, and leaves nothing uncommitted."""
    assert owed
    assert replica.is_running, replica.log
    replica.terminate()
    assert replica.exit_code() == 0, replica.log
    scene.expect_all_committed(timeout=0.0)


def test_a_broker_that_stalls_loses_nothing(own_broker: JvmBroker, tmp_path: Path) -> None:
    """A broker that is there and does not answer for four seconds is waited for."""
    with Scene(Cluster(own_broker.bootstrap_servers), tmp_path, TUNED) as scene:
        replica = scene.replica()
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(100)
            os.kill(own_broker.pid, signal.SIGSTOP)
            time.sleep(4.0)
            os.kill(own_broker.pid, signal.SIGCONT)
            scene.wait_for_progress(200)
            load.stop()

        scene.verdict().expect_clean(repeats=REPEATS_PER_DEATH)
        scene.expect_right_values()
        expect_clean_exit(scene, replica, load.acknowledged)

"""Processes die, members come and go, the broker restarts: nothing is lost, order holds, repeats stay within bounds.

Under exactly once, readers of committed data get no repeats.
"""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import pytest

from tests.kafka.broker import NEVER_FENCED, JvmBroker
from tests.kafka.cluster import MORTAL, NEVER_DEAD, TIMEOUT, Cluster
from tests.kafka.fixtures import NewBroker
from tests.kafka.replica import Replica
from tests.kafka.scene import GUARANTEES, Scene, quick_exactly_once

RATE = 1000.0  # requests per second
INFLIGHT = 500
COMMIT_INTERVAL = 0.2  # seconds
# The most repeats of one death: answers not yet committed, on a machine that commits as soon as a commit is due.
# Under exactly once there are none.
REPEATS_PER_DEATH = int(INFLIGHT + COMMIT_INTERVAL * RATE)
TUNED = {
    "BATCHING__MAX_INFLIGHT_RECORDS": str(INFLIGHT),
    "DELIVERY__COMMIT_INTERVAL_MS": str(int(COMMIT_INTERVAL * 1000)),
}


WAYS = [" ".join(pair) for pair in itertools.product(GUARANTEES, ("consumer", "classic"))]


def each_way(quick: str) -> pytest.MarkDecorator:
    """Both guarantees under both group protocols: `quick` ("exactly_once classic") always, others in long runs."""
    assert quick in WAYS
    slow = (pytest.mark.slow,)
    return pytest.mark.parametrize("way", [pytest.param(way, marks=() if way == quick else slow) for way in WAYS])


def staged(kafka: Cluster, folder: Path, way: str, session: float = MORTAL) -> Scene:
    """A stage for replicas with this guarantee and group protocol (`way`); `session` is in seconds."""
    guarantee, protocol = way.split()
    classic = {"KAFKA__SESSION_TIMEOUT_MS": str(int(session * 1000))} if protocol == "classic" else {}
    settings = {**TUNED, "KAFKA__GROUP_PROTOCOL": protocol, **classic}
    return Scene(kafka, folder, settings, guarantee=guarantee, session=session)


def kill_under_load(scene: Scene, kills: int) -> None:
    """Two replicas under load; `kills` times, after 200 more settled answers, one is killed and replaced."""
    replicas, repeats = scene.replicas(2), 0
    with scene.publishing(RATE) as load:
        for _ in range(kills):
            scene.wait_for_progress(200)
            replicas.pop(random.randrange(2)).kill()
            repeats += scene.not_committed() + INFLIGHT  # the last ones may still be on their way to the broker
            replicas += scene.replicas(1)
        scene.wait_for_progress(50)
        load.stop()
    scene.expect_kept(repeats=repeats)
    scene.expect_right_values()


def restart_under_load(scene: Scene, restarts: int) -> None:
    """Two replicas under load; `restarts` times a new one joins and the oldest leaves by SIGTERM, exit code 0."""
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
    scene.expect_kept()
    scene.expect_right_values()


@each_way("at_least_once consumer")
def test_nothing_is_lost_when_a_replica_is_killed(kafka: Cluster, tmp_path: Path, way: str) -> None:
    """kill -9 under load: the other replica takes over; at most the uncommitted answers are repeated."""
    with staged(kafka, tmp_path, way) as scene:
        kill_under_load(scene, 1)


@each_way("exactly_once consumer")
def test_a_rolling_restart_repeats_nothing(kafka: Cluster, tmp_path: Path, way: str) -> None:
    """Each of two replicas is replaced under load by SIGTERM: nothing lost, nothing answered twice, both exit 0."""
    with staged(kafka, tmp_path, way, NEVER_DEAD) as scene:
        restart_under_load(scene, 2)


@each_way("exactly_once classic")
def test_a_rebalance_storm_loses_and_repeats_nothing(kafka: Cluster, tmp_path: Path, way: str) -> None:
    """A member that joins and leaves all the time takes partitions and gives them back, while two replicas answer."""
    with staged(kafka, tmp_path, way, NEVER_DEAD) as scene:
        storm(scene, way.split()[1], visits=3)


def storm(scene: Scene, protocol: str, visits: int) -> None:
    """Two replicas under load, and a plain consumer that visits every 1.2 s; answers go on in each visit."""
    scene.replicas(2)
    with scene.publishing(RATE) as load:
        for _ in range(visits):
            visit(scene, protocol, seconds=0.8)
            time.sleep(0.4)
        load.stop()

    scene.expect_kept()
    scene.expect_right_values()


def visit(scene: Scene, protocol: str, seconds: float) -> None:
    """A plain consumer joins the workers' group until they have answered meanwhile; it commits nothing."""
    visitor = scene.kafka.visitor(scene.group, protocol, scene.topics)
    answers, began = len(scene.auditor.answers), time.monotonic()
    while time.monotonic() < began + seconds or len(scene.auditor.answers) == answers:
        assert time.monotonic() < began + TIMEOUT, "nothing is answered while a visitor is there"
        visitor.poll(0.05)
    visitor.close()


@each_way("at_least_once classic")
def test_a_replica_that_was_given_up_does_no_harm_when_it_wakes(kafka: Cluster, tmp_path: Path, way: str) -> None:
    """SIGSTOP past the session timeout, then SIGCONT: the sleeper's partitions have moved; it commits none."""
    with staged(kafka, tmp_path, way) as scene:
        sleeper, _ = scene.replicas(2)
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(100)
            sleeper.suspend()
            repeats = scene.not_committed() + INFLIGHT
            scene.wait_for_members(1)
            scene.wait_for_progress(100)
            sleeper.resume()
            scene.wait_for_members(2)
            scene.wait_for_progress(50)
            load.stop()

        scene.expect_kept(repeats=repeats)
        scene.expect_right_values()
        assert sleeper.is_running


# `test_three_brokers.py` restarts brokers under exactly once: a lone broker loses the ends of transactions.


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
def test_a_broker_restart_loses_nothing(hurt_broker: JvmBroker, tmp_path: Path, how: str) -> None:
    """The broker goes away under load and comes back: the worker waits, goes on, and still runs."""
    restart_broker_under_load(hurt_broker, tmp_path, how, seconds=1.5)


@pytest.mark.slow
def test_ten_seconds_without_a_broker_lose_nothing(hurt_broker: JvmBroker, tmp_path: Path) -> None:
    """It is longer than sessions last: requests are read again, and answered once the broker is back."""
    restart_broker_under_load(hurt_broker, tmp_path, "kill", seconds=10.0)


def restart_broker_under_load(broker: JvmBroker, folder: Path, how: str, seconds: float) -> None:
    """One replica under load; its broker ends by `how` and starts again `seconds` later."""
    with Scene(Cluster(broker.bootstrap_servers), folder, TUNED) as scene:
        replica = scene.replica()
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(100)
            getattr(broker, how)()
            time.sleep(seconds)
            assert replica.status("/healthz") == 200, "a broker that is away is no reason to restart"
            broker.start()
            scene.wait_for_progress(200)
            load.stop()

        expect_unharmed(scene, replica)


def expect_unharmed(scene: Scene, replica: Replica) -> None:
    """Fail the test unless the replica kept its promises, runs, ends with 0, and leaves nothing uncommitted."""
    scene.expect_kept(repeats=REPEATS_PER_DEATH)
    scene.expect_right_values()
    assert replica.is_running, replica.log
    replica.terminate()
    assert replica.exit_code() == 0, replica.log
    scene.expect_all_committed(timeout=0.0)


@quick_exactly_once
def test_a_broker_that_stalls_loses_nothing(new_broker: NewBroker, tmp_path: Path, guarantee: str) -> None:
    """The worker waits for a broker that does not answer for four seconds."""
    broker = new_broker(NEVER_FENCED)
    with Scene(Cluster(broker.bootstrap_servers), tmp_path, TUNED, guarantee=guarantee) as scene:
        replica = scene.replica()
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(100)
            broker.suspend()
            time.sleep(4.0)
            broker.heal()
            scene.wait_for_progress(200)
            load.stop()

        expect_unharmed(scene, replica)

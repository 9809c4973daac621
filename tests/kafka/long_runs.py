"""What takes minutes: ten kills, ten restarts, a random mix of faults, a backlog of a million requests.

Not collected by default; by hand or by night: `make long`. Each prints its figures.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.scene import RAW_HEADER, Scene
from tests.kafka.test_faults import (
    RATE,
    REPEATS_PER_DEATH,
    WAYS,
    kill_under_load,
    restart_under_load,
    staged,
    storm,
    visit,
)
from tests.models import mlp

MIB = 1024 * 1024
MINUTES = 60.0
pytestmark = pytest.mark.timeout(30 * MINUTES)


each_way = pytest.mark.parametrize("way", WAYS)


@each_way
def test_ten_kills_lose_nothing(kafka: Cluster, tmp_path: Path, way: str) -> None:
    """Ten times kill -9 of a replica that has settled 200 answers: nothing lost, order kept, repeats within bounds."""
    with staged(kafka, tmp_path, way) as scene:
        kill_under_load(scene, 10)

        tell(f"ten kills, {way}", scene)


@each_way
def test_ten_restarts_repeat_nothing(kafka: Cluster, tmp_path: Path, way: str) -> None:
    """Ten times SIGTERM under load: nothing lost, nothing repeated, every exit 0."""
    with staged(kafka, tmp_path, way) as scene:
        restart_under_load(scene, 10)

        tell(f"ten restarts, {way}", scene)


@each_way
def test_a_minute_of_rebalances_repeats_nothing(kafka: Cluster, tmp_path: Path, way: str) -> None:
    """Fifty times a member comes for 0.8 s: nothing lost, nothing repeated, answers in every second."""
    with staged(kafka, tmp_path, way) as scene:
        storm(scene, way.split()[1], visits=50)

        tell(f"fifty visits, {way}", scene)


def tell(what: str, scene: Scene) -> None:
    """One line for whoever watches."""
    repeated = len(scene.auditor.answers) - len(scene.acknowledged)
    sys.stderr.write(f"\n{what}: {len(scene.acknowledged):,} requests, none lost, {repeated} answers repeated\n")


@each_way
@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_mix_of_faults_loses_nothing(own_broker: JvmBroker, tmp_path: Path, way: str, seed: int) -> None:
    """Twenty faults in an order that only the seed knows: kills, stops, sleepers, visitors, broker restarts."""
    chance = random.Random(seed)
    with staged(Cluster(own_broker.bootstrap_servers), tmp_path, way) as scene:
        replicas = scene.replicas(2)

        def killed() -> None:
            replicas.pop(chance.randrange(2)).kill()
            replicas.append(scene.start().wait_until_ready())

        def restarted() -> None:
            old = replicas.pop(chance.randrange(2))
            old.terminate()
            assert old.exit_code() == 0, old.log
            replicas.append(scene.start().wait_until_ready())

        def slept() -> None:
            sleeper = chance.choice(replicas)
            sleeper.suspend()
            time.sleep(chance.uniform(0.5, 6.0))
            sleeper.resume()

        def visited() -> None:
            visit(scene, way.split()[1], chance.uniform(0.2, 2.0))

        def bounced() -> None:
            chance.choice([own_broker.stop, own_broker.kill])()
            time.sleep(chance.uniform(0.1, 3.0))
            own_broker.start()

        faults: list[Callable[[], None]] = [killed, restarted, slept, visited, bounced]
        with scene.publishing(RATE) as load:
            for _ in range(20):
                chance.choice(faults)()
                time.sleep(chance.uniform(0.0, 3.0))
            scene.wait_for_progress(50, timeout=60.0)
            load.stop()

        scene.expect_kept(repeats=20 * REPEATS_PER_DEATH, timeout=60.0)
        scene.expect_right_values()
        tell(f"mix {seed}, {way}", scene)


def test_a_backlog_of_a_million_requests_stays_out_of_memory(kafka: Cluster, tmp_path: Path) -> None:
    """A million requests of 1 KiB wait for a model slower than they came, at the default bounds: under 400 MiB more."""
    with Scene(kafka, tmp_path, model=mlp(256, (2048, 2048, 2048), 16)) as scene:
        values = [value.tobytes() for value in np.random.default_rng(1).standard_normal((1000, 256), np.float32)]
        idle = scene.replica()
        base = idle.peak_rss
        idle.terminate()
        assert idle.exit_code() == 0
        kafka.produce(scene.topic, (Sent(b"%d" % n, values[n % 1000], [RAW_HEADER]) for n in range(1_000_000)))

        replica = scene.replica()
        time.sleep(60.0)

        answers = sum(kafka.end_offsets(scene.response_topic).values())
        sys.stderr.write(
            f"\nbacklog: {base / MIB:.0f} MiB idle, {replica.peak_rss / MIB:.0f} after {answers:,} answers\n"
        )
        assert answers < 900_000, "there was no backlog any more"
        assert replica.peak_rss - base < 400 * MIB

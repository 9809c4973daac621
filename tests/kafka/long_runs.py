"""What takes minutes: ten kills, ten restarts, a random mix of faults, a backlog of a million requests.

Not collected by default; by hand or by night: `make faults`. Each prints its figures.
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
from tests.kafka.checker import Verdict
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.scene import RAW_HEADER, Scene
from tests.kafka.test_faults import (
    PROTOCOLS,
    RATE,
    REPEATS_PER_DEATH,
    TUNED,
    both_protocols,
    kill_under_load,
    restart_under_load,
    visit,
)
from tests.models import mlp

MIB = 1024 * 1024
MINUTES = 60.0
pytestmark = pytest.mark.timeout(30 * MINUTES)


def tell(what: str, scene: Scene, verdict: Verdict) -> None:
    """One line for whoever watches."""
    found = f"{len(verdict.lost)} lost, {len(verdict.disordered)} out of order, {verdict.repeats} repeated"
    sys.stderr.write(f"\n{what}: {len(scene.acknowledged):,} requests, {found}\n")


@both_protocols
def test_ten_kills_lose_nothing(kafka: Cluster, tmp_path: Path, protocol: str) -> None:
    """Ten times kill -9 of a replica that has settled 200 answers: nothing lost, order kept, repeats within bounds."""
    with Scene(kafka, tmp_path, TUNED | PROTOCOLS[protocol]) as scene:
        verdict = kill_under_load(scene, 10)

        tell(f"ten kills, {protocol}", scene, verdict)
        verdict.expect_clean(repeats=10 * REPEATS_PER_DEATH)


@both_protocols
def test_ten_restarts_repeat_nothing(kafka: Cluster, tmp_path: Path, protocol: str) -> None:
    """Ten times SIGTERM under load: nothing lost, nothing repeated, every exit 0."""
    with Scene(kafka, tmp_path, TUNED | PROTOCOLS[protocol]) as scene:
        verdict = restart_under_load(scene, 10)

        tell(f"ten restarts, {protocol}", scene, verdict)
        verdict.expect_clean()


@both_protocols
@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_mix_of_faults_loses_nothing(own_broker: JvmBroker, tmp_path: Path, protocol: str, seed: int) -> None:
    """Twenty faults in an order that only the seed knows: kills, stops, sleepers, visitors, broker restarts."""
    chance = random.Random(seed)
    with Scene(Cluster(own_broker.bootstrap_servers), tmp_path, TUNED | PROTOCOLS[protocol]) as scene:
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
            visit(scene, protocol, chance.uniform(0.2, 2.0))

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

        verdict = scene.verdict(60.0)
        tell(f"mix {seed}, {protocol}", scene, verdict)
        verdict.expect_clean(repeats=20 * REPEATS_PER_DEATH)
        scene.expect_right_values()
        scene.expect_all_committed()


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

"""Three brokers restart in turn, or cannot be reached one after the other, and the answers go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.fixtures import or_skip
from tests.kafka.scene import Scene, both_guarantees
from tests.kafka.test_exactly_once import staged, wait_for_open_transaction
from tests.kafka.test_faults import RATE, REPEATS_PER_DEATH, TUNED
from tests.kafka.trio import Trio

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PATIENCE = 120.0  # leaders and coordinators move within 5 s on an idle machine; three JVMs on two cores take longer


@pytest.fixture(scope="module")
def _trio() -> Iterator[Trio]:
    with or_skip(Trio) as trio:
        yield trio


@pytest.fixture
def trio(_trio: Trio) -> Iterator[Trio]:
    """Three nodes to stop, kill and cut off; all of them are there when a test begins."""
    _trio.heal()
    yield _trio
    _trio.heal()


@both_guarantees
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_brokers_restart_one_after_the_other(trio: Trio, tmp_path: Path, guarantee: str, how: str) -> None:
    """Clean or by kill -9, under load: leaders and coordinators move, answers go on, and nothing is lost."""
    with Scene(trio.cluster, tmp_path, TUNED, guarantee=guarantee) as scene:
        replicas = scene.replicas(2)
        with scene.publishing(RATE) as load:
            for node in trio.nodes:
                scene.wait_for_progress(100, PATIENCE)
                getattr(node, how)()
                scene.wait_for_progress(100, PATIENCE)
                node.start()
                trio.wait_until_in_sync()
            scene.wait_for_progress(100, PATIENCE)
            load.stop()

        scene.expect_kept(repeats=len(trio.nodes) * REPEATS_PER_DEATH, timeout=PATIENCE)
        scene.expect_right_values()
        for replica in replicas:
            replica.terminate()
        assert [replica.exit_code() for replica in replicas] == [0, 0]


@both_guarantees
def test_each_broker_is_out_of_the_workers_reach_for_a_while(trio: Trio, tmp_path: Path, guarantee: str) -> None:
    """Cut off from leaders and coordinators in turn, for 20 s each, while the cluster itself is whole."""
    settings = {**TUNED, "KAFKA__BOOTSTRAP_SERVERS": trio.proxied}
    with Scene(trio.cluster, tmp_path, settings, guarantee=guarantee) as scene:
        replica = scene.replica()
        with scene.publishing(RATE) as load:
            for proxy in trio.proxies:
                scene.wait_for_progress(50, PATIENCE)
                proxy.cut()
                time.sleep(20.0)
                proxy.heal()
            scene.wait_for_progress(50, PATIENCE)
            load.stop()

        # With a reachable leader and no reachable coordinator, answers go on uncommitted.
        scene.expect_kept(repeats=len(scene.acknowledged), timeout=PATIENCE)
        scene.expect_right_values()
        replica.terminate()
        assert replica.exit_code() == 0, replica.log


def test_a_broker_that_dies_between_the_answers_and_their_commit_loses_nothing(trio: Trio, tmp_path: Path) -> None:
    """kill -9 of each broker in turn with an open transaction: it ends or is taken back, and nothing comes twice."""
    with staged(trio.cluster, tmp_path) as scene:
        replica = scene.replica()
        with scene.publishing(RATE) as load:
            for node in trio.nodes:
                scene.wait_for_progress(50, PATIENCE)
                wait_for_open_transaction(scene)
                node.kill()
                scene.wait_for_progress(50, PATIENCE)
                node.start()
                trio.wait_until_in_sync()
            load.stop()

        scene.expect_kept(timeout=PATIENCE)
        scene.expect_right_values()
        replica.terminate()
        assert replica.exit_code() == 0, replica.log

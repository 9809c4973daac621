"""Slow, lossy and cut networks between the worker and its brokers; the test's own clients connect directly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.cluster import Cluster
from tests.kafka.network import Proxy, broker_behind
from tests.kafka.scene import Scene, both_guarantees, quick_at_least_once
from tests.kafka.test_exactly_once import wait_for_open_transaction
from tests.kafka.test_faults import REPEATS_PER_DEATH, TUNED, expect_unharmed

RATE = 500.0  # requests per second


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[Cluster, Proxy]]:
    """A broker, and the proxy before it that can disturb the network."""
    proxy = Proxy()
    with broker_behind(proxy) as cluster:
        yield cluster, proxy


def staged(proxied: tuple[Cluster, Proxy], folder: Path, guarantee: str, **settings: str) -> Scene:
    """A stage whose replicas connect through the proxy."""
    cluster, proxy = proxied
    proxy.heal()
    return Scene(cluster, folder, {**TUNED, "KAFKA__BOOTSTRAP_SERVERS": proxy.address, **settings}, guarantee=guarantee)


@quick_at_least_once
def test_a_slow_and_lossy_network_costs_time_alone(
    proxied: tuple[Cluster, Proxy], tmp_path: Path, guarantee: str
) -> None:
    """50 ms ± 20 each way, and every hundredth packet lost: all is answered once, and the lag goes."""
    with staged(proxied, tmp_path, guarantee) as scene:
        replica = scene.replica()
        proxied[1].slow_down(0.05, jitter=0.02, loss=0.01)
        with scene.publishing(RATE) as load:
            time.sleep(4.0)
            load.stop()

        scene.expect_kept()
        scene.expect_right_values()
        replica.terminate()
        assert replica.exit_code() == 0, replica.log
        scene.expect_all_committed(timeout=0.0)


def test_a_transaction_whose_end_nobody_hears_of_is_answered_once(
    proxied: tuple[Cluster, Proxy], tmp_path: Path
) -> None:
    """A cut while transactions end outlasts their timeout: the worker asks for the outcome and does not guess."""
    with staged(proxied, tmp_path, "exactly_once", DELIVERY__COMMIT_INTERVAL_MS="500") as scene:
        replica = scene.replica()
        with scene.publishing(RATE) as load:
            for _ in range(2):
                scene.wait_for_progress(50)
                wait_for_open_transaction(scene)
                proxied[1].cut()
                time.sleep(2.7)  # the timeout is 2 s
                proxied[1].heal()
            scene.wait_for_progress(50)
            load.stop()

        replica.wait_until_taken_back()  # else no transaction was under way
        expect_unharmed(scene, replica)


@pytest.mark.slow
@both_guarantees
def test_a_minute_without_the_broker_is_waited_for(
    proxied: tuple[Cluster, Proxy], tmp_path: Path, guarantee: str
) -> None:
    """Sessions, requests and transactions end in that minute; then it goes on, nothing is lost, and the lag goes."""
    with staged(proxied, tmp_path, guarantee) as scene:
        replica = scene.replica()
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(50)
            proxied[1].cut()
            time.sleep(60.0)
            assert replica.status("/healthz") == 200, "a broker out of reach is no reason to restart"
            proxied[1].heal()
            scene.wait_for_progress(50, timeout=60.0)
            load.stop()

        scene.expect_kept(repeats=REPEATS_PER_DEATH, timeout=60.0)
        scene.expect_right_values()
        replica.terminate()
        assert replica.exit_code() == 0, replica.log

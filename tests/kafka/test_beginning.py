"""Workers begin at the right offsets, and `check` tells them, when the group's coordinator has just moved."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.cluster import Cluster
from tests.kafka.misleading import FIND_COORDINATOR, LIST_OFFSETS, Misleading
from tests.kafka.network import broker_behind
from tests.kafka.scene import Scene, quick_consumer, raw
from tests.kafka.test_faults import each_way
from tests.kafka.test_publish_consume import environment
from worker.kafka.consumer.rebalances import PATIENCE

COUNT, PARTITIONS = 400, 4
SECOND_THOUGHTS = 2.0  # seconds: a client rewound while it looked up the log's beginning went there in 0.5


@pytest.fixture(scope="module")
def misled() -> Iterator[tuple[Cluster, Misleading]]:
    """A broker, and the misleading proxy before it."""
    proxy = Misleading()
    with broker_behind(proxy) as cluster:
        yield cluster, proxy


def live(scene: Scene, proxy: Misleading, half: int, wrong_answers: int, reset: str = "earliest") -> None:
    """Let a worker, misled `wrong_answers` times, answer half of the requests (some in each partition) and end."""
    numbers = range(half * COUNT, (half + 1) * COUNT)
    scene.publish([raw(number, partition=number % PARTITIONS) for number in numbers])
    proxy.wrong_answers = wrong_answers
    replica = scene.start({"KAFKA__AUTO_OFFSET_RESET": reset})
    scene.expect_kept()
    if proxy.seconds_for:
        time.sleep(SECOND_THOUGHTS)
        scene.expect_kept()
    assert proxy.wrong_answers == proxy.wrong_seconds == 0, "nobody was misled"
    replica.terminate()
    assert replica.exit_code() == 0, replica.log


@each_way("exactly_once classic")
def test_a_coordinator_that_has_moved_is_asked_again(
    misled: tuple[Cluster, Misleading], tmp_path: Path, way: str
) -> None:
    """At a group's first assignment and at a later one nothing is lost, repeated, or stands still."""
    cluster, proxy = misled
    guarantee, protocol = way.split()
    settings = {"KAFKA__BOOTSTRAP_SERVERS": proxy.address, "KAFKA__GROUP_PROTOCOL": protocol}
    with Scene(cluster, tmp_path, settings, guarantee=guarantee, partitions=PARTITIONS) as scene:
        for half in range(2):
            live(scene, proxy, half, 3)  # the first question, the client's own if it asks, and the next one
        scene.expect_right_values()


@quick_consumer
def test_nothing_comes_again_where_the_group_tells_late(
    misled: tuple[Cluster, Misleading], tmp_path: Path, protocol: str
) -> None:
    """The group answers after all patience and the leader is slow: a client that looked up the beginning went there."""
    cluster, proxy = misled
    settings = {"KAFKA__BOOTSTRAP_SERVERS": proxy.address, "KAFKA__GROUP_PROTOCOL": protocol}
    with Scene(cluster, tmp_path, settings, partitions=PARTITIONS) as scene:
        live(scene, proxy, 0, 0)
        proxy.wrong_seconds = PATIENCE["earliest"] - 0.05  # the last question in the callback comes earlier than this
        proxy.seconds_for[LIST_OFFSETS] = 1.0  # longer than until the question after the next
        live(scene, proxy, 1, 0)
    proxy.seconds_for.clear()


@pytest.mark.parametrize(
    ("policy", "protocol"),
    [
        ("latest", "classic"),
        ("error", "consumer"),
        pytest.param("latest", "consumer", marks=pytest.mark.slow),
        pytest.param("error", "classic", marks=pytest.mark.slow),
    ],
)
def test_it_is_asked_again_where_there_is_nowhere_to_begin(
    misled: tuple[Cluster, Misleading], tmp_path: Path, policy: str, protocol: str
) -> None:
    """Under these policies a group goes on only from its own offsets, and here every partition has one."""
    cluster, proxy = misled
    settings = {"KAFKA__BOOTSTRAP_SERVERS": proxy.address, "KAFKA__GROUP_PROTOCOL": protocol}
    with Scene(cluster, tmp_path, settings, partitions=PARTITIONS) as scene:
        live(scene, proxy, 0, 0)
        live(scene, proxy, 1, 3, policy)


@quick_consumer
def test_what_is_sent_to_a_ready_worker_is_read_under_latest(
    misled: tuple[Cluster, Misleading], tmp_path: Path, protocol: str
) -> None:
    """A slow leader tells late where a partition ends: until then the worker is not ready."""
    cluster, proxy = misled
    settings = {"KAFKA__BOOTSTRAP_SERVERS": proxy.address, "KAFKA__GROUP_PROTOCOL": protocol}
    settings |= {"KAFKA__AUTO_OFFSET_RESET": "latest"}
    with Scene(cluster, tmp_path, settings, partitions=PARTITIONS) as scene:
        proxy.seconds_for[LIST_OFFSETS] = 0.7
        replica = scene.start()
        replica.wait_until_ready()

        scene.publish([raw(number, partition=number % PARTITIONS) for number in range(48)])

        scene.expect_kept()
    proxy.seconds_for.clear()


def test_check_lives_when_the_coordinator_has_moved(misled: tuple[Cluster, Misleading], tmp_path: Path) -> None:
    """It runs in a process of its own: the admin client's question for offsets would end that process (SIGSEGV)."""
    cluster, proxy = misled
    with Scene(cluster, tmp_path, {"KAFKA__BOOTSTRAP_SERVERS": proxy.address}) as scene:
        proxy.wrong_answers = 1
        checked = subprocess.run(
            [sys.executable, "-m", "worker", "check"], env=environment(scene.settings), capture_output=True, check=False
        )

    assert proxy.wrong_answers == 0, "nobody was misled"
    assert checked.returncode == 0, checked


ASKING = """
import logging, sys, time
from confluent_kafka import KafkaException
from worker.kafka.cluster.admin_answers import described_group
from worker.kafka.client.errors import ClientLog
from worker.settings import Connection
try:
    described_group(Connection(bootstrap_servers=sys.argv[1]), "group", 0.5, ClientLog(logging.getLogger()))
except (KafkaException, TimeoutError):
    time.sleep(2.0)
    sys.exit(7)
"""


def test_a_group_that_is_described_late_ends_nothing(misled: tuple[Cluster, Misleading]) -> None:
    """It runs in a process of its own: an answer that comes after the question's timeout can end that process."""
    _, proxy = misled
    proxy.seconds_for[FIND_COORDINATOR] = 1.5

    asked = subprocess.run([sys.executable, "-c", ASKING, proxy.address], capture_output=True, check=False)

    proxy.seconds_for.clear()
    assert asked.returncode == 7, asked

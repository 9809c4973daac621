"""Tests that take minutes: ten kills, ten restarts, a random mix of faults, a backlog of a million requests.

Not collected by default; run them by hand or by night: `make long`. Each prints its figures.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.kafka.cluster import Cluster, Sent
from tests.kafka.replica import Held
from tests.kafka.scene import RAW_HEADER, Scene, both_guarantees, raw
from tests.kafka.test_faults import WAYS, kill_under_load, restart_under_load, staged, storm
from tests.models import mlp

MIB = 1024 * 1024
MINUTES = 60.0
pytestmark = pytest.mark.timeout(30 * MINUTES)


each_way = pytest.mark.parametrize("way", WAYS)


@each_way
def test_ten_kills_lose_nothing(kafka: Cluster, tmp_path: Path, way: str) -> None:
    """Ten replicas, each with 200 answers settled, die by kill -9: nothing lost, order kept, repeats within bounds."""
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
    """Fifty times a member joins for 0.8 s: nothing lost, nothing repeated, answers in every second."""
    with staged(kafka, tmp_path, way) as scene:
        storm(scene, way.split()[1], visits=50)

        tell(f"fifty visits, {way}", scene)


def tell(what: str, scene: Scene) -> None:
    """Print one line for people."""
    repeated = len(scene.auditor.answers) - len(scene.acknowledged)
    sys.stderr.write(f"\n{what}: {len(scene.acknowledged):,} requests, none lost, {repeated} answers repeated\n")


@both_guarantees
def test_ten_runs_leave_nothing_behind(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Ten runs over 20,000 requests, some of them bad: memory, threads and open files do not grow."""
    with Scene(kafka, tmp_path, guarantee=guarantee) as scene:
        replica = scene.replica()
        held: list[Held] = []
        for _ in range(10):
            load = [raw(number, key=b"key-%d" % (number % 97)) for number in range(20_000)]
            scene.publish([*load, *[Sent(b"bad", b"no row", [RAW_HEADER])] * 200])
            scene.expect_all_committed(timeout=60.0)
            held.append(replica.held)

        sys.stderr.write(f"\nten runs, {guarantee}: {[each._replace(memory=each.memory // MIB) for each in held]}\n")
        scene.expect_kept(timeout=60.0)
        third, last = held[2], held[-1]  # by the third, pools and caches have their final size
        assert last.memory - third.memory < 16 * MIB
        assert last.threads <= third.threads
        assert last.files <= third.files


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

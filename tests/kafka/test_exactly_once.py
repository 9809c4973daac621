"""Transactions that are killed, fenced, rebalanced, outlived, or cut off between answers and commit.

Every case ends with each answer once, in order, for readers of committed data.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.kafka.cluster import MORTAL, TIMEOUT, Cluster
from tests.kafka.scene import Scene, quick_consumer, quick_exactly_once, wait_until_running
from tests.kafka.spins import spin
from tests.kafka.test_faults import RATE, expect_unharmed
from tests.models import spinner

# A transaction stays open for two seconds while answers come: long enough to be hit.
WIDE = {"DELIVERY__COMMIT_INTERVAL_MS": "2000", "DELIVERY__TRANSACTION_TIMEOUT_MS": "60000"}


def staged(kafka: Cluster, folder: Path, **settings: str) -> Scene:
    """A stage for replicas that hold their transactions open."""
    return Scene(kafka, folder, {**WIDE, **settings}, guarantee="exactly_once", session=MORTAL)


def wait_for_open_transaction(scene: Scene) -> None:
    """Wait until answers are written that no reader may see yet."""
    deadline = time.monotonic() + TIMEOUT
    while not scene.kafka.has_open_transaction(scene.response_topic):
        assert time.monotonic() < deadline, "no transaction opens"
        time.sleep(0.01)


STATIC = {
    "KAFKA__GROUP_PROTOCOL": "classic",
    "KAFKA__SESSION_TIMEOUT_MS": "6000",
    "KAFKA__GROUP_INSTANCE_ID": "the-one",
}


@pytest.mark.parametrize(
    "named",
    [
        pytest.param({"DELIVERY__TRANSACTIONAL_ID": "stable-{hostname}"}, id="set", marks=pytest.mark.slow),
        pytest.param({}, id="by_instance"),
    ],
)
def test_a_replica_that_comes_back_under_its_id_ends_what_it_left_open(
    kafka: Cluster, tmp_path: Path, named: dict[str, str]
) -> None:
    """Killed in a transaction of 60 s, it holds readers up until its return and first commit, not for a minute."""
    with staged(kafka, tmp_path, **STATIC, **named) as scene:
        replica = scene.replica()
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(50)
            wait_for_open_transaction(scene)
            replica.kill()
            killed = time.monotonic()
            held_up = len(scene.auditor.answers)
            back = scene.start().wait_until_ready()
            load.stop()
        scene.auditor.wait_for(list(scene.acknowledged)[: held_up + 1])

        assert len(scene.auditor.answers) > held_up
        assert time.monotonic() - killed < 50.0, "the broker itself may have ended it"
        expect_unharmed(scene, back)


def test_the_older_of_two_replicas_with_one_id_exits(kafka: Cluster, tmp_path: Path) -> None:
    """The younger one fences it off: exit 4, with one line that names the id and the setting."""
    with staged(kafka, tmp_path, DELIVERY__TRANSACTIONAL_ID="shared", DELIVERY__COMMIT_INTERVAL_MS="100") as scene:
        older = scene.replica()
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(100)
            younger = scene.start().wait_until_ready()

            assert older.exit_code() == 4, older.log
            scene.wait_for_members(1)
            scene.wait_for_progress(100)
            load.stop()

        expect_unharmed(scene, younger)
        said = json.loads(older.log.splitlines()[-1])
        assert (said["event"], said["exit_code"]) == ("stopped", 4)
        assert said["reason"].startswith("another process uses the transactional id shared: ")
        assert "; give each replica its own, WORKER_DELIVERY__TRANSACTIONAL_ID" in said["reason"]


@quick_consumer
def test_a_rebalance_in_the_middle_of_a_transaction_repeats_nothing(
    kafka: Cluster, tmp_path: Path, protocol: str
) -> None:
    """It ends before its partitions move, or is taken back: the new owner begins behind it, or answers it all."""
    with staged(kafka, tmp_path, KAFKA__GROUP_PROTOCOL=protocol) as scene:
        first = scene.replica()
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(50)
            second = scene.start().wait_until_ready()
            wait_for_open_transaction(scene)
            scene.wait_for_members(2)
            wait_for_open_transaction(scene)
            first.terminate()
            assert first.exit_code() == 0, first.log
            scene.wait_for_members(1)
            scene.wait_for_progress(50)
            load.stop()

        expect_unharmed(scene, second)


def test_an_inference_longer_than_the_transactions_timeout_costs_nothing(kafka: Cluster, tmp_path: Path) -> None:
    """It takes four seconds where transactions end after two: none is open meanwhile, and none fails."""
    settings = {"DELIVERY__TRANSACTION_TIMEOUT_MS": "2000", "BATCHING__MAX_BATCH_SIZE": "2"}
    with Scene(kafka, tmp_path, settings, guarantee="exactly_once", model=spinner(), partitions=2) as scene:
        replica = scene.replica()

        scene.publish([*[spin(0.001)] * 20, spin(4.0), *[spin(0.001)] * 20])

        scene.expect_kept()
        assert replica.failed_transactions == 0


def test_partitions_that_move_during_an_inference_longer_than_the_timeout_lose_nothing(
    kafka: Cluster, tmp_path: Path
) -> None:
    """Transactions end while the revoke waits for the inference; its request is answered once, by either replica."""
    settings = {"DELIVERY__TRANSACTION_TIMEOUT_MS": "1000", "BATCHING__MAX_BATCH_SIZE": "2"}
    with Scene(kafka, tmp_path, settings, guarantee="exactly_once", model=spinner(), partitions=2) as scene:
        first = scene.replica()
        scene.publish([spin(0.001)] * 20)
        scene.answers()
        scene.publish([spin(3.0), *[spin(0.001)] * 20])
        wait_until_running(first)

        scene.replica()

        scene.expect_kept()
        assert first.is_running


@quick_exactly_once
def test_a_fresh_group_at_the_end_loses_nothing_when_it_dies_before_its_first_commit(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """AUTO_OFFSET_RESET=latest: its start is committed first, so its heir begins there, not at the new end."""
    settings = {"KAFKA__AUTO_OFFSET_RESET": "latest"}
    with Scene(kafka, tmp_path, settings, guarantee=guarantee, model=spinner(), partitions=2, session=MORTAL) as scene:
        scene.publish([spin(0.001)] * 10)
        scene.acknowledged.clear()  # sent before the group began: nobody's
        replica = scene.replica()
        scene.wait_for_offsets()  # it has partitions, and may not have asked yet where they end
        scene.publish([spin(3.0)] * 2)
        wait_until_running(replica)
        replica.kill()
        scene.publish([spin(0.001)] * 10)

        scene.replica()

        scene.expect_kept()


def test_of_two_replicas_with_one_instance_id_the_groups_choice_goes_on(kafka: Cluster, tmp_path: Path) -> None:
    """A classic group keeps the younger one. The older one ends (4), however their transactions met."""
    with staged(kafka, tmp_path, **STATIC, DELIVERY__COMMIT_INTERVAL_MS="100") as scene:
        older = scene.replica()
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(100)
            younger = scene.start().wait_until_ready()

            assert older.exit_code() == 4, older.log
            scene.wait_for_progress(100)
            load.stop()

        expect_unharmed(scene, younger)
        assert "another replica has the same WORKER_KAFKA__GROUP_INSTANCE_ID" in older.log.splitlines()[-1]


def test_a_replica_that_a_group_refuses_leaves_its_namesake_alive(kafka: Cluster, tmp_path: Path) -> None:
    """A KIP-848 group keeps the older of two with one instance id; that one takes its transactional id back."""
    settings = {"KAFKA__GROUP_PROTOCOL": "consumer", "KAFKA__GROUP_INSTANCE_ID": "the-one"}
    with staged(kafka, tmp_path, **settings, DELIVERY__COMMIT_INTERVAL_MS="100") as scene:
        older = scene.replica()
        with scene.publishing(RATE) as load:
            scene.wait_for_progress(100)
            younger = scene.start()

            assert younger.exit_code() == 4, younger.log
            older.wait_until_taken_back()  # else they never met
            scene.wait_for_progress(100)
            load.stop()

        expect_unharmed(scene, older)
        assert "a replica with this WORKER_KAFKA__GROUP_INSTANCE_ID is in the group" in younger.log

"""State by key in an outside store, over a real Kafka: states equal a serial replay's, whatever dies in between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.kafka.cluster import MORTAL, Cluster, Sent
from tests.kafka.publisher import Acknowledged, Position
from tests.kafka.scene import Scene
from tests.kafka.test_publish_consume import run
from tests.kafka.test_state import MEAN_SETTINGS, Serial, mean_serial, number
from tests.models import running_mean
from tests.stores.running import RunningStore

HEAD = 8 + 24  # bytes before the tensors
VALUES = np.random.default_rng(3).integers(0, 50, (65_536, 2))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunningStore]:
    folder = tmp_path / "store"
    folder.mkdir()
    with RunningStore(folder) as running:
        yield running


class StoredScene(Scene):
    """A scene whose replicas keep states in an outside store."""

    def __init__(self, kafka: Cluster, folder: Path, store: RunningStore, in_memory: int = 1_000_000) -> None:
        settings = {**MEAN_SETTINGS, "STATE__STORE": store.url, "STATE__KEYS_IN_MEMORY": str(in_memory)}
        super().__init__(kafka, folder, settings, model=running_mean(), session=MORTAL)
        self.store = store

    def make(self, count: int) -> tuple[str, Sent]:
        """The n-th request of a load."""
        value, key = VALUES[count % len(VALUES)]
        return self.topic, number(float(value), b"key-%d" % key)

    def expect_serial(self, acknowledged: Acknowledged, serial: Serial) -> None:
        """Fail the test unless every answer and every last state equal a serial replay's."""
        answers: dict[Position | None, set[bytes]] = {}
        for answer in self.answers():
            assert not answer.is_error, answer
            answers.setdefault(answer.source, set()).add(answer.value or b"")
        for position, sent in sorted(acknowledged.items()):
            expected = serial.run(sent.key or b"", sent.value or b"")
            assert answers[position] == {expected.tobytes()}, position
        self.expect_all_committed()
        kept = self.store.values(f"{self.group}-state:")
        assert kept.keys() == serial.states.keys()
        for key, value in kept.items():
            assert value[HEAD:] == serial.state_bytes(key), key


def test_states_in_a_store_are_those_of_a_serial_replay(kafka: Cluster, tmp_path: Path, store: RunningStore) -> None:
    """Keys beyond memory; a second replica joins, and the first one leaves."""
    rng = np.random.default_rng(1)
    keys = [b"key-%d" % key for key in rng.integers(0, 4000, 10_000)]
    requests = [number(float(value), key) for value, key in zip(rng.integers(0, 1000, 10_000), keys, strict=True)]
    with StoredScene(kafka, tmp_path, store, in_memory=1024) as scene:
        first = scene.replica()
        acknowledged = scene.publish(requests[:4000])
        second = scene.replica()
        acknowledged |= scene.publish(requests[4000:7000])
        first.terminate()
        acknowledged |= scene.publish(requests[7000:])
        scene.expect_serial(acknowledged, mean_serial())
        second.wait_until_counted("inference_worker_states_loaded_total", 1)
        assert second.metric("inference_worker_states") < 3000  # of 3,700 keys; those in flight are here, too


def test_a_killed_replica_leaves_no_wrong_state_in_the_store(
    kafka: Cluster, tmp_path: Path, store: RunningStore
) -> None:
    """Killed twice under load and replaced: no answered request is applied twice."""
    with StoredScene(kafka, tmp_path, store) as scene:
        replica = scene.replica()
        with scene.publishing(600, scene.make) as load:
            for _ in range(2):
                scene.wait_for_progress(50)
                replica.kill()
                replica = scene.replica()
            acknowledged = load.stop()
        scene.expect_serial(acknowledged, mean_serial())


def test_a_store_that_is_away_is_waited_for(kafka: Cluster, tmp_path: Path, store: RunningStore) -> None:
    """Killed under load, and started again from its disk: nothing is lost, and the log says it once."""
    with StoredScene(kafka, tmp_path, store) as scene:
        replica = scene.replica()
        with scene.publishing(600, scene.make) as load:
            scene.wait_for_progress(50)
            store.stop()
            replica.wait_until_counted("inference_worker_state_store_away_seconds", 3)
            store.start()
            scene.wait_for_progress(50)
            acknowledged = load.stop()
        scene.expect_serial(acknowledged, mean_serial())
        replica.wait_until("inference_worker_state_store_away_seconds", lambda seconds: seconds == 0)
        assert len(re.findall("state_store_away", replica.log)) == len(re.findall("state_store_back", replica.log)) == 1


def test_a_replica_that_stood_still_overwrites_nothing(kafka: Cluster, tmp_path: Path, store: RunningStore) -> None:
    """Suspended until another has its partitions, and woken up: its successor's states stay."""
    with StoredScene(kafka, tmp_path, store) as scene:
        zombie = scene.replica()
        with scene.publishing(600, scene.make) as load:
            scene.wait_for_progress(50)
            zombie.suspend()
            scene.start().wait_until_ready()
            scene.wait_for_progress(300)
            zombie.resume()
            scene.wait_for_progress(50)
            acknowledged = load.stop()
        scene.expect_serial(acknowledged, mean_serial())


def test_the_commands_look_into_the_store(kafka: Cluster, tmp_path: Path, store: RunningStore) -> None:
    """`check` tries it; `state get` and `reset` work, and commands that read a changelog refuse."""
    with StoredScene(kafka, tmp_path, store) as scene:
        checked = run(scene, "check", "--json").documents[0]
        assert checked["starts"], checked["problems"]
        assert f"127.0.0.1:{store.port}" in checked["cluster"]["states"]
        assert "127.0.0.1" in run(scene, "check").output
        scene.replica()
        scene.publish([number(7, b"key")])
        scene.answers()
        scene.expect_all_committed()

        [document] = run(scene, "state", "get", "key", "--json").documents
        assert document["tensors"]["sum_in"]["data"] == [7.0]
        assert document["written_by"] == f"{scene.topic}/{document['partition']}/0"
        assert run(scene, "state", "reset", "key").code == 0
        scene.expect_all_committed()
        assert run(scene, "state", "get", "key").code != 0
        refused = run(scene, "state", "list")
        assert refused.code == 2
        assert "SCAN" in refused.errors

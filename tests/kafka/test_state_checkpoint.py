"""On a real Kafka a clean stop leaves the states to the next start, which reads back only later ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.kafka.cluster import Cluster, Sent
from tests.kafka.replica import Replica
from tests.kafka.scene import quick_at_least_once, quick_exactly_once
from tests.kafka.test_state import MEAN_SETTINGS, StatefulScene, expect_serial, mean_serial, number

KEYS = 3000
PICKED = np.random.default_rng(5).integers(0, KEYS, 65_536)


class KeepingScene(StatefulScene):
    """A scene whose replicas keep 1,024 keys in memory and the others in a directory, shared or not."""

    def __init__(self, kafka: Cluster, folder: Path, guarantee: str) -> None:
        self.folder = folder
        self.sent = 0
        super().__init__(kafka, folder, {**MEAN_SETTINGS, "STATE__KEYS_IN_MEMORY": "1024"}, guarantee=guarantee)

    def replica_in(self, directory: str) -> Replica:
        started = self.start({"STATE__DIRECTORY": str(self.folder / directory)})
        started.wait_until_ready()
        self.wait_for_members(1)
        return started

    def ask(self, count: int) -> None:
        """Send `count` more requests, and wait until they are answered and committed."""
        numbers = range(self.sent, self.sent + count)
        self.sent += count
        self.publish([self._request(at) for at in numbers])
        self.answers()
        self.expect_all_committed()

    def expect_states_of_a_serial_replay(self) -> None:
        expect_serial(self, self.acknowledged, mean_serial())

    @staticmethod
    def _request(at: int) -> Sent:
        return number(float(at % 50), b"key-%d" % PICKED[at])


def stop(replica: Replica) -> None:
    replica.terminate()
    assert replica.exit_code() == 0


@quick_exactly_once
def test_a_restart_goes_on_from_what_a_clean_stop_left(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """This holds if another replica has served meanwhile, and if no request came at all."""
    with KeepingScene(kafka, tmp_path, guarantee) as scene:
        first = scene.replica_in("a")
        scene.ask(8000)
        stop(first)
        assert "states_kept" in first.log
        meanwhile = scene.replica_in("b")
        scene.ask(3000)
        stop(meanwhile)

        again = scene.replica_in("a")
        scene.ask(3000)
        stop(again)
        at_once = scene.replica_in("a")
        scene.ask(3000)

        for replica in (again, at_once):
            assert "states_found" in replica.log
            assert "states_thrown_away" not in replica.log
        keys = len({sent.key for sent in scene.acknowledged.values()})
        at_once.wait_until_counted("inference_worker_states", keys)
        assert at_once.metric("inference_worker_states") == keys
        scene.expect_states_of_a_serial_replay()
        scene.verdict().expect_clean()


def test_what_a_killed_process_had_is_thrown_away(kafka: Cluster, tmp_path: Path) -> None:
    """One line says why, and all states are read back."""
    with KeepingScene(kafka, tmp_path, "exactly_once") as scene:
        first = scene.replica_in("a")
        scene.ask(8000)
        first.kill()

        again = scene.replica_in("a")
        scene.ask(3000)

        assert again.log.count("states_thrown_away") == 1
        assert "the process that had it did not stop cleanly" in again.log
        scene.expect_states_of_a_serial_replay()


@quick_at_least_once
def test_one_that_stood_still_keeps_nothing_of_what_others_wrote(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """It must stop before it can learn that another replica has had its partitions."""
    with KeepingScene(kafka, tmp_path, guarantee) as scene:
        first = scene.replica_in("a")
        scene.ask(4000)
        first.suspend()
        meanwhile = scene.replica_in("b")
        scene.ask(4000)
        stop(meanwhile)
        first.terminate()
        first.resume()
        first.exit_code()

        scene.replica_in("a")
        scene.ask(3000)

        scene.expect_states_of_a_serial_replay()

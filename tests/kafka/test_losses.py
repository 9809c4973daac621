"""The start and `check` report what a group lost while no worker ran; no request is applied to a state twice."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.kafka.cluster import Cluster, Sent
from tests.kafka.forgotten_offsets import forget_offsets
from tests.kafka.replica import Replica
from tests.kafka.scene import Scene, quick_at_least_once, quick_exactly_once, raw
from tests.kafka.test_publish_consume import run
from tests.kafka.test_state import StatefulScene, number

KEYS = [b"key-%d" % at for at in range(12)]


def stop(replica: Replica) -> None:
    replica.terminate()
    assert replica.exit_code() == 0


def warnings(scene: Scene) -> list[str]:
    """The texts of `check`'s warnings."""
    [report] = run(scene, "check", "--json").documents
    return [warning["text"] for warning in report["warnings"]]


def lose(scene: Scene, *partitions: int) -> None:
    forget_offsets(scene.kafka.bootstrap_servers, scene.group, scene.topic, partitions)


def requests_in(scene: Scene, key: bytes) -> int:
    """The number of requests in a key's state."""
    [state] = run(scene, "state", "get", key.decode(), "--json").documents
    return int(state["tensors"]["count_in"]["data"][0])


@quick_at_least_once
def test_offsets_that_are_partly_gone_are_said_with_counts(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """The first worker and `check` say it, but not of a group that has all its offsets or never had any."""
    with Scene(kafka, tmp_path, guarantee=guarantee, partitions=3) as scene:
        assert not [text for text in warnings(scene) if "has no offset" in text]
        replica = scene.replica()
        scene.publish([raw(at, partition=at % 2) for at in range(20)])
        scene.answers()
        stop(replica)
        assert not [text for text in warnings(scene) if "has no offset" in text]

        lose(scene, 0)

        [told] = [text for text in warnings(scene) if "has no offset" in text]
        assert f"for 1 of 3 partitions with requests ({scene.topic}/0), and offsets for" in told
        assert re.search(r"their 1\d records are read from the beginning, and what was answered before", told)
        assert "has no offset for 1 of 3 partitions" in scene.replica().log
        assert "has no offset" not in scene.replica().log


def test_exactly_once_states_are_not_applied_twice(kafka: Cluster, tmp_path: Path) -> None:
    """The changelog's own offsets tell it. The way out in the message is right: no request is lost or repeated."""
    with StatefulScene(kafka, tmp_path, partitions=2) as scene:
        replica = scene.replica()
        scene.publish([number(1.0, key)._replace(partition=at % 2) for at, key in enumerate(KEYS * 2)])
        before = len(scene.answers())
        stop(replica)
        lose(scene, 1)
        refused = scene.start()

        assert refused.exit_code() == 2
        assert "exactly once they would be applied twice" in refused.log
        [offset] = re.findall(rf"--topic {scene.topic}:1 --to-offset (\d+)", refused.log)

        kafka.set_offset(scene.group, scene.topic, 1, int(offset))
        scene.replica()
        scene.publish([number(1.0, key)._replace(partition=at % 2) for at, key in enumerate(KEYS)])
        found = scene.answers()

        assert len(found) == before + len(KEYS)
        assert all(np.frombuffer(answer.value or b"", "<f8")[0] == 1.0 for answer in found)
        assert {requests_in(scene, key) for key in KEYS[:3]} == {3}


@pytest.mark.parametrize("is_cut", [False, True])
def test_states_that_are_gone_are_said_with_counts(kafka: Cluster, tmp_path: Path, *, is_cut: bool) -> None:
    """The changelog was made anew or cut, so its keys begin anew."""
    with StatefulScene(kafka, tmp_path, partitions=2) as scene:
        replica = scene.replica()
        scene.publish([number(1.0, key)._replace(partition=at % 2) for at, key in enumerate(KEYS)])
        scene.answers()
        stop(replica)
        assert not [text for text in warnings(scene) if "changelog" in text]

        if is_cut:
            kafka.configure(scene.changelog, {"cleanup.policy": "delete"})
            kafka.delete_records(scene.changelog, 1, 3)
            kafka.configure(scene.changelog, {"cleanup.policy": "compact"})
        else:
            scene.settings["KAFKA__CHANGELOG_TOPIC"] = kafka.create_topic(
                "empty", partitions=2, config={"cleanup.policy": "compact"}
            )

        [told] = [text for text in warnings(scene) if "changelog" in text]
        log = scene.replica().log
        assert f"in {'1' if is_cut else '2'} of 2 partitions ({scene.changelog if is_cut else 'empty'}" in told
        assert told.split(":")[0] in log


@quick_exactly_once
def test_a_foreign_record_in_the_changelog_costs_nothing(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """It is named and counted, by the tools too, and ends no worker."""
    with StatefulScene(kafka, tmp_path, guarantee=guarantee, partitions=1) as scene:
        replica = scene.replica()
        scene.publish([number(1.0, key) for key in KEYS])
        scene.answers()
        stop(replica)
        digits = [("offset", b"9" * 5000), ("\xff", None)]
        kafka.produce(scene.changelog, [Sent(KEYS[0], b"x"), Sent(b"other", b""), Sent(b"never", None, digits)])

        replica = scene.replica()
        scene.publish([number(1.0, key) for key in KEYS])
        scene.answers()

        assert "foreign_states_passed_over" in replica.log
        assert replica.metric("inference_worker_foreign_states_total") == 2
        listed = run(scene, "state", "list", "--json")
        assert len(listed.documents) == len(KEYS)
        assert "2 records of" in listed.errors
        assert {requests_in(scene, key) for key in KEYS[:2]} == {2}

"""`state` commands on a real Kafka: workers go on from the states that they show, save and bring back."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from tests.kafka.cluster import Cluster, Sent
from tests.kafka.test_publish_consume import run
from tests.kafka.test_state import PARTITIONS, RAW, StatefulScene, number
from tests.models import running_square

COMPACTED = {"cleanup.policy": "compact"}
MANY = 40


def key(at: int) -> bytes:
    return b"key-%d" % at


class Served(StatefulScene):
    """A scene with forty keys, one request each, answered by a worker that goes on."""

    def serve(self) -> Self:
        self._replica = self.replica()
        self.publish([number(float(at), key(at)) for at in range(MANY)])
        self.answers()
        return self

    def stop(self) -> None:
        """Stop the worker."""
        self._replica.terminate()
        assert self._replica.exit_code() == 0


@pytest.fixture
def scene(kafka: Cluster, tmp_path: Path) -> Iterator[Served]:
    with Served(kafka, tmp_path) as made:
        yield made.serve()


def test_a_key_is_shown_and_forgotten(scene: Served) -> None:
    """It is shown with the request that wrote it, and forgotten by a request of its own, in order."""
    shown = run(scene, "state", "get", "key-7", "--json")
    [document] = shown.documents
    assert shown.code == 0
    assert document["key"] == {"base64": base64.b64encode(b"key-7").decode(), "text": "key-7"}
    assert document["tensors"]["sum_in"] == {"datatype": "FP64", "shape": [1], "data": [7.0]}
    assert document["tensors"]["count_in"]["data"] == [1]
    assert document["written_by"].startswith(f"{scene.topic}/{document['partition']}/")
    assert run(scene, "state", "get", document["key"]["base64"], "--base64", "--json").documents == [document]
    assert "sum_in FP64" in run(scene, "state", "get", "key-7").output

    forgotten = run(scene, "state", "reset", "key-7")

    assert forgotten.code == 0
    assert "key-7: forgotten by" in forgotten.output
    assert run(scene, "state", "get", "key-7").code == 7
    assert run(scene, "state", "reset", "key-7").code == 7
    assert "has no state of this key" in run(scene, "state", "get", "key-7").errors


def test_a_state_that_the_model_fails_on_is_forgotten(kafka: Cluster, tmp_path: Path) -> None:
    """The command's request begins anew first: no request can go on from this state."""
    settings = {"STATE__TENSORS": '{"s_in": "s_out"}'}
    with StatefulScene(kafka, tmp_path, settings, model=running_square()) as scene:
        scene.replica()
        row = Sent(b"stuck", np.array([1e25], "<f4").tobytes(), [RAW])
        scene.publish([row, row])
        assert [answer.is_error for answer in scene.answers()] == [False, True]

        forgotten = run(scene, "state", "reset", "stuck")

        assert forgotten.code == 0, forgotten.errors
        assert run(scene, "state", "get", "stuck").code == 7


def test_states_move_to_a_changelog_of_more_partitions(kafka: Cluster, scene: Served, tmp_path: Path) -> None:
    """They are exported, imported into other partitions, and used further: no key begins anew."""
    file = tmp_path / "states.npz"
    assert run(scene, "state", "export", file).code == 0
    assert "is there already" in run(scene, "state", "export", file).errors
    refused = run(scene, "state", "import", file)
    assert (refused.code, "has 1 member" in refused.errors) == (2, True)
    scene.stop()

    with StatefulScene(kafka, tmp_path, partitions=6) as moved:
        brought = run(moved, "state", "import", file)
        assert (brought.code, "partitioned anew by murmur2_random" in brought.output) == (0, True), brought.errors
        assert len(run(moved, "state", "list", "--json").documents) == MANY
        moved.replica()
        moved.publish([number(9.0, key(at)) for at in range(MANY)])
        found = {a.key: float(np.frombuffer(a.value or b"", "<f8")[0]) for a in moved.answers()}

    assert found == {key(at): (at + 9.0) / 2 for at in range(MANY)}


def test_an_import_keeps_partitions_where_there_are_as_many(kafka: Cluster, scene: Served, tmp_path: Path) -> None:
    """So a backup works with any partitioner of the publishers."""
    file = tmp_path / "states.npz"
    run(scene, "state", "export", file)
    before = run(scene, "state", "list", "--json").documents
    scene.stop()
    scene.settings["KAFKA__CHANGELOG_TOPIC"] = kafka.create_topic("again", partitions=PARTITIONS, config=COMPACTED)

    brought = run(scene, "state", "import", file, "--partitioner", "consistent_random")

    assert (brought.code, "in the partitions they had" in brought.output) == (0, True), brought.errors
    after = run(scene, "state", "list", "--json").documents
    assert [{**document, "written_by": None} for document in before] == after


def test_a_changelog_of_another_model_is_refused(kafka: Cluster, scene: Served, tmp_path: Path) -> None:
    """A changelog whose partitions do not fit is refused, too."""
    file = tmp_path / "states.npz"
    run(scene, "state", "export", file)
    scene.stop()
    swapped = {"STATE__TENSORS": '{"count_in": "count_out"}'}
    with_less = dict(scene.settings)
    scene.settings.update(swapped)
    assert "holds a state of" in run(scene, "state", "list").errors
    assert "state/count_in, state/sum_in, used_ms, where a file" in run(scene, "state", "import", file).errors
    scene.settings.update(with_less)
    scene.settings["KAFKA__CHANGELOG_TOPIC"] = kafka.create_topic("few", partitions=2, config=COMPACTED)

    assert "has 2 partitions" in run(scene, "state", "import", file).errors
    del scene.settings["STATE__TENSORS"], scene.settings["KAFKA__CHANGELOG_TOPIC"]
    assert "the model has no state" in run(scene, "state", "list").errors

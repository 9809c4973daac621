"""Less order on a real broker: answers that may pass a slow request do, and a kill in that moment loses nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.kafka.cluster import Cluster, Sent
from tests.kafka.scene import COMES_BACK, Scene
from tests.kafka.spins import spin
from tests.models import spinner

SLOW_SECONDS = 4.0
# One request to a batch, and a second lane next to the slow request's.
TWO_LANES = {"BATCHING__MAX_BATCH_SIZE": "1", "BATCHING__LANES": "2", "BATCHING__LINGER_MS": "0"}


def fast(key: bytes | None, number: int) -> Sent:
    """A request of `number` turns, which take microseconds."""
    return spin(0.0)._replace(key=key, value=np.int64(number).tobytes())


@pytest.mark.parametrize(("order", "waiting"), [("key", {b"a"}), ("none", set())])
def test_a_slow_request_is_passed_and_a_kill_meanwhile_loses_nothing(
    kafka: Cluster, tmp_path: Path, order: str, waiting: set[bytes]
) -> None:
    """Requests of its key wait only under `key`; no commit passes it, and the next worker answers all again."""
    settings = {**COMES_BACK, **TWO_LANES, "DELIVERY__ORDER": order}
    with Scene(kafka, tmp_path, settings, model=spinner(), partitions=1) as scene:
        replica = scene.replica()
        before = scene.publish([fast(b"a", 1), fast(b"b", 2)])
        scene.answers()
        scene.expect_all_committed()

        scene.publish([spin(SLOW_SECONDS)._replace(key=b"a")])
        behind = scene.publish([fast(b"a", 3), *[fast(b"b", number) for number in range(4, 24)], fast(None, 24)])
        early = {position for position, sent in behind.items() if sent.key not in waiting}
        scene.auditor.wait_for(early)

        assert {found.source for found in scene.auditor.answers} == early | set(before)
        assert scene.committed() == {0: len(before)}
        replica.kill()
        scene.start().wait_until_ready()
        scene.expect_kept(repeats=len(early))
        for found in scene.auditor.answers:
            assert found.source is not None
            turns = np.frombuffer(scene.acknowledged[found.source].value or b"", "<i8")
            assert np.frombuffer(found.value or b"", "<f4") == turns.astype("<f4")

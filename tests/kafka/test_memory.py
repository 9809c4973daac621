"""A worker without enough memory for its batches: the operating system enforces a real limit."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.kafka.cluster import Cluster
from tests.kafka.replica import Replica
from tests.kafka.scene import WIDTH, Scene, raw
from tests.models import hungry

ROW_BYTES = 32 << 20  # memory that the model needs for one row, besides the weights
COUNT, BATCH = 640, 32  # 20 batches, which would each fail three times if the worker learned nothing
# Two batches are under way when memory first runs out. Each may fail as one, as two halves and as four quarters. Once
# more the limit may grow too far, and that batch fail.
MOST_FAILURES = 2 * (1 + 2 + 4) + 1


@contextmanager
def room_for(replica: Replica, size: int) -> Iterator[None]:
    """Limit the model's process to `size` bytes more than it has now."""
    pages = int(Path(f"/proc/{replica.host}/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + size
    found = resource.prlimit(replica.host, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    yield
    resource.prlimit(replica.host, resource.RLIMIT_AS, found)


def test_batches_that_the_memory_does_not_hold_become_smaller(kafka: Cluster, tmp_path: Path) -> None:
    """Every request has its result, and after a few failures no inference fails any more."""
    settings = {"BATCHING__MAX_BATCH_SIZE": str(BATCH), "BATCHING__LINGER_MS": "200", "MODEL__WARM_UP_ROWS": "1,2"}
    with Scene(kafka, tmp_path, settings, model=hungry(WIDTH, ROW_BYTES // 4)) as scene:
        replica = scene.replica()
        with room_for(replica, BATCH * ROW_BYTES // 2):
            scene.publish([raw(number) for number in range(COUNT)])
            scene.expect_kept()

        answers = scene.answers()
        assert not any(answer.is_error for answer in answers)
        by_source = {answer.source: np.frombuffer(answer.value or b"", "f4")[0] for answer in answers}
        for source, sent in scene.acknowledged.items():
            assert np.isclose(by_source[source], np.frombuffer(sent.value or b"", "f4").sum(), atol=1e-3)
        replica.wait_until_settled(COUNT)
        assert 1 <= replica.metric("inference_worker_inference_runs_total", result="failed") <= MOST_FAILURES
        assert replica.metric("inference_worker_batches_total", closed_by="memory") >= 1

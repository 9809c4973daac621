"""Workers on CUDA between topics of a real Kafka: two lanes, a model's process that dies, batches beyond the memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.kafka.cluster import Cluster
from tests.kafka.scene import WIDTH, Scene, raw
from tests.models import hungry

ON_CUDA = {
    "MODEL__DEVICE": "cuda",
    "MODEL__PROVIDER_OPTIONS": json.dumps({"CUDAExecutionProvider": {"use_tf32": "0"}}),
}
ROW_BYTES = 32 << 20  # memory of one row of `hungry` on the device
COUNT = 640


def test_two_lanes_answer_every_request_rightly(kafka: Cluster, tmp_path: Path) -> None:
    """The main job works on a GPU."""
    with Scene(kafka, tmp_path, {**ON_CUDA, "BATCHING__LANES": "2"}) as scene:
        replica = scene.replica()
        scene.publish([raw(number) for number in range(5000)])

        scene.expect_kept()
        scene.expect_right_values()
        assert "WORKER_MODEL__DEVICE is cuda" in replica.log


def test_a_killed_host_costs_no_answer(kafka: Cluster, tmp_path: Path) -> None:
    """The next one takes the device again, and locks the memory again that the first one had locked."""
    with Scene(kafka, tmp_path, {**ON_CUDA, "BATCHING__LANES": "2"}) as scene:
        replica = scene.replica()
        assert "memory_page_locked" in replica.whole_log
        with scene.publishing(rate=2000.0) as load:
            scene.wait_for_progress(50)
            replica.kill_host()
            replica.wait_until_logged_more("model_host_started", 1)
            scene.wait_for_progress(50)
            load.stop()

        scene.expect_kept()
        scene.expect_right_values()
        assert replica.metric("inference_worker_model_hosts_ended_total", reason="killed") == 1


def test_batches_that_the_device_does_not_hold_become_smaller(kafka: Cluster, tmp_path: Path) -> None:
    """Every request has its result, and the worker remembers the size that fits."""
    settings = {
        **ON_CUDA,
        "MODEL__GPU_MEM_LIMIT": str(20 * ROW_BYTES),
        "MODEL__WARM_UP_ROWS": "1,2",
        "BATCHING__MAX_BATCH_SIZE": "64",
        "BATCHING__LINGER_MS": "200",
    }
    with Scene(kafka, tmp_path, settings, model=hungry(WIDTH, ROW_BYTES // 4)) as scene:
        replica = scene.replica()
        scene.publish([raw(number) for number in range(COUNT)])

        scene.expect_kept()
        for answer in scene.answers():
            assert not answer.is_error
            assert answer.source is not None
            sent = scene.acknowledged[answer.source].value or b""
            assert np.isclose(np.frombuffer(answer.value or b"", "f4")[0], np.frombuffer(sent, "f4").sum(), atol=1e-3)
        assert replica.metric("inference_worker_batches_total", closed_by="memory") >= 1

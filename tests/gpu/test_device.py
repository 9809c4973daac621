"""All kernels run on CUDA, a batch that does not fit fails alone, and two lanes do not mix their batches."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.gpu.nets import NETS, on_gpu, outputs
from tests.models import hungry, save
from worker.core.failures import Code, RunFailure

ROW_BYTES = 32 << 20  # memory of one row of `hungry` on the device
CUDA = "CUDAExecutionProvider"
PATIENCE = 60.0


@pytest.mark.parametrize("name", ["small MLP", "ResNet-50", "encoder"])
def test_every_kernel_runs_on_cuda(name: str, gpu: str, tmp_path: Path) -> None:
    """ONNX Runtime's own profile shows it: only kernels that read shapes are left to the CPU."""
    net = NETS[name]
    model, feeds = net.build(), net.feeds(4)
    assert on_gpu(tmp_path, model).device.name == gpu
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(save(model, tmp_path), options, providers=[CUDA, "CPUExecutionProvider"])

    session.run(None, dict(feeds))

    events = json.loads(Path(session.end_profiling()).read_text())
    ran = Counter((each["args"]["provider"], each["args"]["op_name"]) for each in events if each.get("cat") == "Node")
    elsewhere = {kind for provider, kind in ran if provider != CUDA}
    assert ran
    assert elsewhere <= {"Shape", "Slice", "Unsqueeze", "Gather", "Concat"}, ran


def test_a_batch_that_does_not_fit_fails_alone(tmp_path: Path) -> None:
    """The loop tries its halves; the failed run's memory is free again."""
    model = on_gpu(tmp_path, hungry(4, ROW_BYTES // 4), gpu_mem_limit=20 * ROW_BYTES)
    rows = np.arange(256, dtype=np.float32).reshape(64, 4)

    starved = model.run({"x": rows})
    (found,) = outputs(model, {"x": rows[:4]})

    assert isinstance(starved, RunFailure)
    assert starved.code is Code.RESOURCE_EXHAUSTED
    assert found.ravel().tolist() == rows[:4].sum(axis=1).tolist()

"""The memory that ONNX Runtime keeps on a GPU from one run to the next.

A run that ran out of memory leaves what it had until then to its own stream, and a run on another stream takes none of
that, though nobody uses it. Two that ran out beside each other left so much that no later one of their size had enough,
not by itself either: 398 of 400 rows were refused that fit one at a time (ONNX Runtime 1.31 on the stand-in for CUDA,
2026-11; `tests/cuda/test_cuda_failures.py`). A run can be asked to give back to the device, at its end, all that nobody
uses, and does so even if it fails.
"""

from __future__ import annotations

import onnxruntime as ort

from worker.inference.running.device import CUDA


def giving_back(session: ort.InferenceSession) -> ort.RunOptions | None:
    """Of a run that gives back what nobody uses; None where there is no GPU to give it to."""
    if CUDA not in session.get_providers():
        return None
    options = ort.RunOptions()
    device = session.get_provider_options()[CUDA]["device_id"]
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", f"gpu:{device}")
    return options

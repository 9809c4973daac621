"""The memory that ONNX Runtime keeps on a GPU from one run to the next.

A run that ran out of memory leaves what it took to its own stream, and runs on other streams cannot have it. After two
such runs beside each other no later run of their size had enough, even alone: 398 of 400 rows were refused that fit one
at a time (ONNX Runtime 1.31 on the stand-in for CUDA, 2026-11; `tests/cuda/test_cuda_failures.py`). A run with these
options gives all unused memory back to the device at its end, even if it fails.
"""

from __future__ import annotations

import onnxruntime as ort

from worker.inference.running.device import CUDA


def giving_back(session: ort.InferenceSession) -> ort.RunOptions | None:
    """The options of a run that gives unused memory back to its GPU; None without CUDA."""
    if CUDA not in session.get_providers():
        return None
    options = ort.RunOptions()
    device = session.get_provider_options()[CUDA]["device_id"]
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", f"gpu:{device}")
    return options

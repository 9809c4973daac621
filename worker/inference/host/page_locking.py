"""Page-locks the shared memory from which batches go to a GPU.

CUDA copies from page-locked memory at once. From other memory it copies through a small buffer of its own, at a
quarter of the rate (`bench.gpu --part copies`: 14 and 53 GB/s on an H200). Locking takes that memory at once, and 0.5
ms for each MiB that has not been written yet.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from pathlib import Path
from typing import Any

from worker.inference.facts import PageLocked
from worker.inference.host.shared_memory import SharedMemory

# Bytes: half a second of a start. It is more than batches in flight take, unless MAX_INFLIGHT_BYTES is raised far.
MOST = 1 << 30
_MAPS = Path("/proc/self/maps")


def page_locked(memory: SharedMemory, inflight_bytes: int) -> PageLocked:
    """Page-lock the first bytes of the memory for CUDA, until this process ends.

    `inflight_bytes` is MAX_INFLIGHT_BYTES. Batches in flight take no more, and the lowest free bytes are lent first.
    """
    size = min(inflight_bytes, MOST, len(memory.bytes)) // mmap.PAGESIZE * mmap.PAGESIZE
    runtime = _runtime()
    if runtime is None:
        return PageLocked(size, "CUDA's runtime is not loaded")
    start = memory.bytes.ctypes.data
    code = runtime.cudaHostRegister(ctypes.c_void_p(start), ctypes.c_size_t(size), ctypes.c_uint(0))
    if not code:
        return PageLocked(size)
    runtime.cudaGetLastError()  # or ONNX Runtime would take it for a failure of its next run
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    return PageLocked(size, f"CUDA failure {code}: {runtime.cudaGetErrorString(code).decode()}")


def _runtime() -> Any:
    """The CUDA runtime that ONNX Runtime has loaded; None if there is none, or its file is gone."""
    found = [line.split(maxsplit=5)[5] for line in _MAPS.read_text().splitlines() if "/libcudart.so" in line]
    with suppress(OSError):
        return ctypes.CDLL(found[0]) if found else None
    return None

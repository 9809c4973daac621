"""What stands for the CUDA runtime: its six functions over this machine's own memory, called through real ctypes.

The device is ONNX Runtime's CPU, whose memory is apart from the page-locked one here as a GPU's would be. Freed memory
is filled with rubbish and kept, so that who still reads it sees rubbish.
"""

from __future__ import annotations

import ctypes
from typing import Any

from worker.inference.running.device_memory import DeviceMemory

HOST_TO_DEVICE = 1


class FakeCuda:
    """`fails` maps a function's name to the code it returns from now on; `garbles`: copies bring rubbish."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}  # page-locked: address → size
        self.allocations = 0
        self.uploads = 0
        self.fails: dict[str, int] = {}
        self.garbles = False
        self.last_error = 0
        self._kept: list[Any] = []
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self.cudaSetDevice = ctypes.CFUNCTYPE(number, number)(lambda _: self._code("cudaSetDevice"))
        self.cudaHostAlloc = ctypes.CFUNCTYPE(number, ctypes.POINTER(pointer), size, ctypes.c_uint)(self._allocate)
        self.cudaFreeHost = ctypes.CFUNCTYPE(number, pointer)(self._free)
        self.cudaGetLastError = ctypes.CFUNCTYPE(number)(self._forget)
        self.cudaMemcpy = ctypes.CFUNCTYPE(number, pointer, pointer, size, number)(self._copy)

    @staticmethod
    def cudaGetErrorString(code: int) -> bytes:  # noqa: N802  # CUDA's name
        return {2: b"out of memory", 700: b"an illegal memory access was encountered"}.get(code, b"unknown")

    def _forget(self) -> int:
        code, self.last_error = self.last_error, 0
        return code

    def _code(self, function: str) -> int:
        code = self.fails.get(function, 0)
        self.last_error = code or self.last_error
        return code

    def _allocate(self, address: Any, size: int, flags: int) -> int:
        if code := self._code("cudaHostAlloc"):
            return code
        assert flags == 1, "page-locked for all threads and devices"
        self._kept.append(ctypes.create_string_buffer(size))
        address[0] = ctypes.addressof(self._kept[-1])
        self.held[address[0]] = size
        self.allocations += 1
        return 0

    def _free(self, address: int) -> int:
        ctypes.memset(address, 0xA5, self.held.pop(address))
        return 0

    def _copy(self, target: int, source: int, size: int, kind: int) -> int:
        if code := self._code("cudaMemcpy"):
            return code
        assert kind == HOST_TO_DEVICE
        assert size <= self.held[source], "it comes from page-locked memory"
        ctypes.memmove(target, source, size)
        if self.garbles:
            ctypes.memset(target, 0x33, size)
        self.uploads += 1
        return 0


def memory(cuda: FakeCuda) -> DeviceMemory:
    return DeviceMemory(cuda, ("cpu", 0))

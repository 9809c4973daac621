"""CUDA's own clock: events on a stream, by the CUDA runtime that ONNX Runtime has loaded into this process."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

LOADED = re.compile(r"/\S*/libcudart\S*\.so\S*")
NON_BLOCKING = 1  # cudaStreamNonBlocking: it does not wait for the default stream, as those of ONNX Runtime


class CudaClock:
    """A stream, and how long what it was given takes. All methods raise `RuntimeError` with CUDA's code."""

    def __init__(self) -> None:
        found = LOADED.search(Path("/proc/self/maps").read_text())
        assert found, "no CUDA runtime is loaded: open a session on CUDA before"
        self._runtime: Any = ctypes.CDLL(found[0])
        self.stream = ctypes.c_void_p()
        self._call("cudaStreamCreateWithFlags", ctypes.byref(self.stream), ctypes.c_uint(NON_BLOCKING))

    def event(self) -> ctypes.c_void_p:
        """One that the stream reaches when all is done that it was given before."""
        event = ctypes.c_void_p()
        self._call("cudaEventCreate", ctypes.byref(event))
        self._call("cudaEventRecord", event, self.stream)
        return event

    def milliseconds(self, first: ctypes.c_void_p, last: ctypes.c_void_p) -> float:
        """From one event to another, waiting for the latter; both are given back."""
        found = ctypes.c_float()
        self._call("cudaEventSynchronize", last)
        self._call("cudaEventElapsedTime", ctypes.byref(found), first, last)
        for event in (first, last):
            self._call("cudaEventDestroy", event)
        return found.value

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._runtime, name)(*arguments):
            raise RuntimeError(f"{name}: CUDA failure {code}")

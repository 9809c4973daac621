"""The stand-in for CUDA as tests see it, and models on it."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tests import models
from tests.cuda.build import RUNTIME
from worker.core.records import Array
from worker.inference.model import Model
from worker.inference.model_loading import load
from worker.settings import ModelSettings

OUT_OF_MEMORY = 2
DRIVER_TOO_OLD = 35
ILLEGAL_ADDRESS = 700


class Cuda:
    """The stand-in of this process: its calls, its memory, and its planned failures."""

    @cached_property
    def library(self) -> Any:
        library = ctypes.CDLL(RUNTIME)
        library.stand_in_bytes.restype = ctypes.c_size_t
        return library

    def serve(self, order: str) -> None:
        """Set the order of streams. `late`: one is served when waited for; `others first`: all others before it."""
        ctypes.c_int.in_dll(self.library, "stand_in_others_first").value = order == "others first"

    @contextmanager
    def slow(self, seconds: float) -> Iterator[None]:
        """Meanwhile each run takes at least `seconds`."""
        least = ctypes.c_int.in_dll(self.library, "stand_in_microseconds")
        least.value = int(seconds * 1e6)
        try:
            yield
        finally:
            least.value = 0

    @contextmanager
    def failing(self, function: str, code: int, after: int = 0) -> Iterator[None]:
        """Meanwhile `function` returns `code`, after it has worked `after` more times."""
        self.library.stand_in_fail(function.encode(), code, after)
        try:
            yield
        finally:
            self.library.stand_in_fail(function.encode(), 0, 0)

    def calls(self, function: str) -> int:
        """The number of calls of a function so far."""
        return int(self.library.stand_in_calls(function.encode()))

    def on_device(self, device: int = 0) -> int:
        """The bytes held on a device."""
        return int(self.library.stand_in_bytes(device, 1))

    def registered(self, device: int = 0) -> int:
        """The bytes of ordinary memory that were page-locked while this device was chosen."""
        return int(self.library.stand_in_bytes(device, 2))

    def unlock(self, memory: Array) -> None:
        """Let page-locked memory be ordinary again."""
        assert not self.library.cudaHostUnregister(ctypes.c_void_p(memory.ctypes.data))

    @contextmanager
    def page_locking(self, arrays: Collection[Array]) -> Iterator[None]:
        """Meanwhile these arrays are in page-locked memory, each for itself."""
        for array in arrays:
            assert not self.library.cudaHostRegister(
                ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), 0
            )
        yield
        for array in arrays:
            self.unlock(array)


def on_cuda(folder: Path, model: bytes, device: str = "cuda", rows: int = 8, **settings: Any) -> Model:
    """The model, loaded as the worker loads it."""
    path = models.save(model, folder)
    loaded = load(ModelSettings(path=path, device=device, **settings), max_batch_size=rows)
    assert loaded.device.name.startswith("cuda")
    return loaded

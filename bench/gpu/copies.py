"""Compares the memory that a batch is copied from: an ordinary array, memory shared by processes, and that page-locked.

CUDA copies from page-locked memory by itself; from all other memory it copies through a buffer of its own.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu.device import MIB
from bench.gpu.networks import FP32, Feeds, Network, Rows
from bench.gpu.results import NETWORK, Case, Column, Line, Part, Stage, of
from bench.gpu.sessions import answered, loaded, milliseconds
from tests.residual import CHANNELS, SIDE, resnet50
from worker.core.records import Array

ARRAY, SHARED, LOCKED = "array", "shared", "shared, page-locked"
ROUNDS = 2  # in turn; the quickest counts
PARTS = ROUNDS * 3  # a line has a figure by the clock in each round, and others that take less
PAGE = mmap.PAGESIZE
TO_DEVICE = 1  # cudaMemcpyHostToDevice
OF_FLOATS = Network("ResNet-50 of floats", FP32, resnet50, Rows("float32", (CHANNELS, SIDE, SIDE)), 64)
HOW = """The worker's model at its batch, with feeds in an ordinary array, in shared memory (a memfd), and in shared
memory that `cudaHostRegister` has page-locked. Run: from the host's memory and back, median of the quickest of two
rounds in turn. Copy: `cudaMemcpy` of those bytes alone. Locking: once, for those bytes."""
COLUMNS = (
    *NETWORK,
    Column("batch", "batch", "d"),
    Column("mib", "MiB", ",.3g"),
    Column("memory", "memory"),
    Column("run_ms", "run, ms", ",.3g"),
    Column("copy_gb_s", "copy, GB/s", ",.3g"),
    Column("locking_ms", "locking, ms", ",.3g"),
)


class CudaError(Exception):
    """A call of CUDA's runtime failed. The message says which one, and how."""


class Runtime:
    """CUDA's runtime, which this process has loaded with its first session. Raises `CudaError`."""

    def __init__(self) -> None:
        maps = Path("/proc/self/maps").read_text().split()
        self._library = ctypes.CDLL(next(each for each in maps if "/libcudart.so" in each))

    def call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise CudaError(f"{name}: CUDA's error {code}")

    def lock(self, memory: Array) -> float:
        """Page-lock this memory, and return the seconds that it took."""
        began = time.perf_counter()
        self.call("cudaHostRegister", ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.nbytes), 0)
        return time.perf_counter() - began

    def unlock(self, memory: Array) -> None:
        self.call("cudaHostUnregister", ctypes.c_void_p(memory.ctypes.data))

    def gb_s(self, memory: Array, seconds: float) -> float:
        """Measures the rate at which the device gets a copy of this memory."""
        device, size = ctypes.c_void_p(), ctypes.c_size_t(memory.nbytes)
        self.call("cudaMalloc", ctypes.byref(device), size)
        copy = partial(self.call, "cudaMemcpy", device, ctypes.c_void_p(memory.ctypes.data), size, TO_DEVICE)
        try:
            return memory.nbytes / milliseconds(copy, seconds) / 1e6
        finally:
            self.call("cudaFree", device)


def shared(size: int) -> Array:
    """Returns so many bytes of memory that processes can share, in whole pages."""
    number = os.memfd_create("feeds", os.MFD_CLOEXEC)
    try:
        os.ftruncate(number, -(-size // PAGE) * PAGE)
        return np.frombuffer(mmap.mmap(number, 0), np.uint8)
    finally:
        os.close(number)


def laid_out(feeds: Feeds, memory: Array) -> Feeds:
    """Copies feeds into this memory, one after the other, each at the begin of a page."""
    found, at = {}, 0
    for name, array in feeds.items():
        found[name] = memory[at : at + array.nbytes].view(array.dtype).reshape(array.shape)
        found[name][...] = array
        at += _pages(array)
    return found


def _pages(array: Array) -> int:
    return -(-array.nbytes // PAGE) * PAGE


def cases(stage: Stage) -> Iterator[Case]:
    """Yields each network in turn. Ragged texts are left out: each batch has another size."""
    has_images = any(network.name == "ResNet-50" for network in stage.networks)
    for network in [*stage.networks, *([OF_FLOATS] if has_images else [])]:
        if not network.is_ragged:
            yield Case(of(network, batch=network.batch), partial(_network, stage, network))


def _network(stage: Stage, network: Network) -> Iterator[Line]:
    seconds, feeds = stage.seconds / PARTS, network.feeds(network.batch)
    run = partial(answered, loaded(stage.model(network), stage.device, network.batch))
    size = sum(map(_pages, feeds.values()))
    places: dict[str, Array] = {name: shared(size) for name in (SHARED, LOCKED)}
    laid = {ARRAY: feeds, **{name: laid_out(feeds, memory) for name, memory in places.items()}}
    places[ARRAY] = np.copy(places[SHARED])
    run(feeds)
    runtime, locking_ms, why = Runtime() if stage.is_gpu else None, None, None
    if runtime is not None:
        try:
            locking_ms = runtime.lock(places[LOCKED]) * 1000
        except CudaError as error:
            why = str(error)
    if locking_ms is None:
        del laid[LOCKED]
    rounds = [{name: milliseconds(partial(run, laid[name]), seconds) for name in laid} for _ in range(ROUNDS)]
    for name in laid:
        yield {
            "mib": sum(each.nbytes for each in feeds.values()) / MIB,
            "memory": name,
            "run_ms": min(measured[name] for measured in rounds),
            "copy_gb_s": None if runtime is None else runtime.gb_s(places[name], seconds / 3),
            "locking_ms": locking_ms if name == LOCKED else None,
            "missing": why,
        }
    if runtime is not None and locking_ms is not None:
        runtime.unlock(places[LOCKED])


PART = Part("copies", "On a GPU: the memory that a batch is copied from", HOW, COLUMNS, cases, limit=120)

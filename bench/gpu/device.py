"""The GPU as its driver sees it while something runs, by NVML (`libnvidia-ml`), which every driver brings.

`nvidia-smi` shows these figures, too. "Busy" is the part of the time in which at least one kernel ran, as NVML samples
it: several times a second, so that a look at less than a second says little.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

EVERY = 0.1  # seconds
LIBRARY = "libnvidia-ml.so.1"
MIB = 1 << 20
NAME_LENGTH = 96


class NoNvmlError(Exception):
    """The driver cannot be asked here. Says why."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Sample(NamedTuple):
    """One look: percent of the time, watts, bytes of the whole device that are in use."""

    busy: int
    watts: float
    used: int


class Device:
    """The first GPU, as its driver knows it. Raises `NoNvmlError`."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NoNvmlError(f"no NVML: {error}") from error
        self._handle = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(0), ctypes.byref(self._handle))

    @property
    def about(self) -> str:
        """Its name, and the driver's version."""
        name, driver = (ctypes.create_string_buffer(NAME_LENGTH) for _ in range(2))
        self._call("nvmlDeviceGetName", self._handle, name, ctypes.c_uint(NAME_LENGTH))
        self._call("nvmlSystemGetDriverVersion", driver, ctypes.c_uint(NAME_LENGTH))
        return f"{name.value.decode()}, driver {driver.value.decode()}"

    def sample(self) -> Sample:
        busy, power, memory = _Utilization(), ctypes.c_uint(), _Memory()
        self._call("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(busy))
        self._call("nvmlDeviceGetPowerUsage", self._handle, ctypes.byref(power))
        self._call("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(memory))
        return Sample(busy.gpu, power.value / 1000, memory.used)

    def joules(self) -> float:
        """Since the driver was loaded."""
        found = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._handle, ctypes.byref(found))
        return found.value / 1000

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise NoNvmlError(f"{name}: NVML's error {code}")


class Watch:
    """Looks at the device from a thread of its own. `why`: what keeps it from that; its figures are None then."""

    def __init__(self, device: str) -> None:
        self.why = ""
        self._samples: list[Sample] = []
        self._joules: float | None = None
        self._device: Device | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        if device == "cpu":
            self.why = "no GPU in this run (--device cpu)"
            return
        try:
            self._device = Device()
        except NoNvmlError as reason:
            self.why = str(reason)

    @property
    def figures(self) -> dict[str, float | None]:
        """`busy`: a part of the time, `watts` in the mean, `joules` in all, `used_mib` at most, of the whole device."""
        if not self._samples:
            return dict.fromkeys(("busy", "watts", "joules", "used_mib"))
        busy, watts, used = zip(*self._samples, strict=True)
        return {
            "busy": statistics.fmean(busy) / 100,
            "watts": statistics.fmean(watts),
            "joules": self._joules,
            "used_mib": max(used) / MIB,
        }

    def begin(self) -> None:
        if self._device is not None:
            self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _look(self) -> None:
        assert self._device is not None
        try:
            before = self._device.joules()
            while not self._over.wait(EVERY):
                self._samples.append(self._device.sample())
            self._joules = self._device.joules() - before
        except (NoNvmlError, AttributeError) as reason:  # the latter: an older driver, without such a function
            self.why = str(reason)


@contextmanager
def watching(device: str) -> Iterator[Watch]:
    """Meanwhile the device is looked at."""
    watch = Watch(device)
    watch.begin()
    try:
        yield watch
    finally:
        watch.end()

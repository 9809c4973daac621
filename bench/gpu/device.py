"""The driver's figures of the GPU during a measurement, from NVML (`libnvidia-ml`), which every driver has.

`nvidia-smi` shows these figures, too. "Busy" is the share of the time in which at least one kernel ran. NVML samples it
several times a second, so a measurement of less than a second says little.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
from typing import Any, NamedTuple, Self

EVERY = 0.1  # seconds
LIBRARY = "libnvidia-ml.so.1"
MIB = 1 << 20
NAME_LENGTH = 96


class NoNvmlError(Exception):
    """The driver cannot be asked here. The message says why."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Sample(NamedTuple):
    """One sample of the whole device: busy percent of the time, watts, bytes in use."""

    busy: int
    watts: float
    used: int


class Device:
    """The first GPU, asked through its driver. Raises `NoNvmlError`."""

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
        """The GPU's name, and the driver's version."""
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
        """Returns the energy used since the driver was loaded."""
        found = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._handle, ctypes.byref(found))
        return found.value / 1000

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise NoNvmlError(f"{name}: NVML's error {code}")


class Watch:
    """Samples the device during a block, in its own thread. `why`: the reason if it cannot; its figures are None."""

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
        """Figures of the whole device: `busy` share of time, mean `watts`, total `joules`, maximum of `used_mib`."""
        if not self._samples:
            return dict.fromkeys(("busy", "watts", "joules", "used_mib"))
        busy, watts, used = zip(*self._samples, strict=True)
        return {
            "busy": statistics.fmean(busy) / 100,
            "watts": statistics.fmean(watts),
            "joules": self._joules,
            "used_mib": max(used) / MIB,
        }

    def __enter__(self) -> Self:
        if self._device is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
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
        except (NoNvmlError, AttributeError) as reason:  # AttributeError: an older driver lacks a function
            self.why = str(reason)

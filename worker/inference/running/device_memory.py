"""Memory that a device copies from and to by itself: the one place where CUDA and the CPU differ for `io_binding`.

ONNX Runtime's Python API lends no page-locked memory of its built-in CUDA provider: its allocator `CudaPinned` has no
name there (`OrtValue.ortvalue_from_shape_and_type` takes `cpu` or `cuda`). So it comes from the CUDA runtime that the
provider has loaded into this process, through six of its functions. No other code of ours calls CUDA.
"""

from __future__ import annotations

import ctypes
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"

_PORTABLE = 1  # cudaHostAllocPortable: page-locked for every device, whichever thread asked for it
_HOST_TO_DEVICE = 1  # cudaMemcpyHostToDevice
_MAPS = Path("/proc/self/maps")
_CUDA_RUNTIME = re.compile(r"/\S*/libcudart\S*\.so\S*")


class Unbindable(Exception):
    """I/O binding is not possible here. The message says why."""


class DeviceMemory:
    """Page-locked memory here and the device's own there, by this CUDA runtime. Called by several lanes at once.

    `device` is where the latter lies, in ONNX Runtime's words: `cuda` and its number. All methods raise `RuntimeError`
    in the words of ONNX Runtime's own CUDA failures, which `run_failure` sorts.
    """

    def __init__(self, runtime: Any, device: tuple[str, int]) -> None:
        self.device = device
        self._runtime = runtime
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        runtime.cudaSetDevice.argtypes = [ctypes.c_int]
        runtime.cudaHostAlloc.argtypes = [ctypes.POINTER(pointer), size, ctypes.c_uint]
        runtime.cudaFreeHost.argtypes = [pointer]
        runtime.cudaMemcpy.argtypes = [pointer, pointer, size, ctypes.c_int]
        runtime.cudaGetErrorString.argtypes = [ctypes.c_int]
        runtime.cudaGetErrorString.restype = ctypes.c_char_p

    def host(self, size: int) -> Bytes:
        """So many bytes, page-locked, 1-dimensional; freed with the last array that looks at them."""
        # The runtime keeps a device for each thread, 0 at first; asked on another than ours it would set up that one.
        self._check(self._runtime.cudaSetDevice(self.device[1]))
        address = ctypes.c_void_p()
        self._check(self._runtime.cudaHostAlloc(ctypes.byref(address), size, _PORTABLE))
        memory = (ctypes.c_uint8 * size).from_address(address.value or 0)
        # Every array over it holds it. Not when the process ends: a lane may still run, and the system frees it anyway.
        weakref.finalize(memory, self._runtime.cudaFreeHost, address).atexit = False
        return np.ctypeslib.as_array(memory)

    def near(self, size: int) -> ort.OrtValue:
        """So many bytes of the device's own memory."""
        place, number = self.device
        return ort.OrtValue.ortvalue_from_shape_and_type([size], np.uint8, place, number)

    def upload(self, host: Bytes, near: ort.OrtValue) -> None:
        """Copy these page-locked bytes to the beginning of what lies near. They have arrived when this returns."""
        # From page-locked memory it returns when all has arrived (CUDA runtime API, "API synchronization behavior").
        # It waits for no lane's kernels: ONNX Runtime's streams do not wait for the default one, nor it for them. And
        # ctypes releases the GIL meanwhile, which ONNX Runtime's own copies to a bound input do not.
        self._check(self._runtime.cudaMemcpy(near.data_ptr(), host.ctypes.data, host.nbytes, _HOST_TO_DEVICE))

    def _check(self, code: int) -> None:
        if code:
            # Or it stays this thread's last error, which ONNX Runtime would take for that of its own next kernel.
            self._runtime.cudaGetLastError()
            text = (self._runtime.cudaGetErrorString(code) or b"unknown error").decode(errors="replace")
            raise RuntimeError(f"CUDA failure {code}: {text}")


def is_accelerated(session: ort.InferenceSession) -> bool:
    """Whether it runs on CUDA, by itself or under TensorRT."""
    return not {CUDA, TENSORRT}.isdisjoint(session.get_providers())


def memory_for(session: ort.InferenceSession) -> DeviceMemory | None:
    """What to bind this session's inputs and outputs to; None where plain runs are faster: on the CPU.

    There bound runs of a network 256→256→16 on 1 thread take 1.23 times as long at 64 rows and 1.11 times at 256
    (measured 2026), as inputs and outputs are copied once more. Raises `Unbindable`.
    """
    if not is_accelerated(session):
        return None
    options = session.get_provider_options()
    number = next(options[name].get("device_id", "0") for name in (TENSORRT, CUDA) if name in options)
    return DeviceMemory(_loaded_runtime(), ("cuda", int(number)))


def _loaded_runtime() -> Any:
    """The CUDA runtime that ONNX Runtime has loaded: no other one knows its device memory. Raises `Unbindable`."""
    try:
        found = _CUDA_RUNTIME.search(_MAPS.read_text())
        if found is None:
            raise Unbindable("no CUDA runtime (libcudart) is loaded in this process")
        return ctypes.CDLL(found[0])
    except OSError as error:
        raise Unbindable(f"the CUDA runtime cannot be reached: {error}") from error

"""Runs through ONNX Runtime's I/O binding: inputs staged in page-locked memory, outputs bound until the rows change.

    feeds ──copy──▶ staging (page-locked) ──upload──▶ device ──run──▶ device ──▶ page-locked ──copy──▶ the loop's arrays
                    └──────────────── one set per lane, reused by all its batches ─────────────┘

What ONNX Runtime's Python API allows, as of 1.31, and what it does not:

- Copy while binding: no. It copies on a stream that the run does not wait for (its issue 10299), with the GIL held, and
  `synchronize_inputs` waits for the whole device, other lanes' kernels too. So we upload by ourselves, and bind what is
  on the device already: that copies nothing.
- Bind an input once: no. One that the model reads on the CPU is copied back when it is bound, and only then. So each
  run binds anew. Bind an output once: yes, but then a run writes where the one before it wrote, also where ONNX Runtime
  chose the place.
- Copy beside kernels in one lane: no. A run returns when its stream is done; one that does not wait
  (`disable_synchronize_execution_providers`) can only be waited for together with the whole device, and
  `user_compute_stream` is one stream for all runs of a session.
- Copy beside the kernels of another lane: yes. Each run has a stream of its own, and neither an upload nor a run holds
  the GIL: with MAX_INFLIGHT_BATCHES and LANES at 2, one lane's copies overlap the other's kernels.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort

from worker.core.records import Array
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.inference.running.device_memory import Bytes, DeviceMemory, Unbindable

Feeds = Mapping[str, Array]


class BoundRuns:
    """Runs one session for several threads, each with a binding and buffers of its own, made at its first run."""

    def __init__(self, session: ort.InferenceSession, signature: Signature, memory: DeviceMemory, rows: int) -> None:
        """`rows` is what buffers are made for at first. Raises `Unbindable` for a model with strings."""
        texts = [spec.name for spec in (*signature.inputs, *signature.outputs) if spec.is_text]
        if texts:
            raise Unbindable(f"ONNX Runtime binds no strings, and {', '.join(texts)} are")
        self._session, self._signature, self._memory, self._rows = session, signature, memory, rows
        self._mine = threading.local()

    def __call__(self, feeds: Feeds) -> Sequence[Array]:
        """The outputs, in the signature's order, in arrays that no later run writes to.

        Raises what ONNX Runtime raises, and `ValueError` for feeds that the model does not take.
        """
        binding = getattr(self._mine, "binding", None)
        if binding is None:
            binding = self._mine.binding = Binding(self._session, self._signature, self._memory, self._rows)
        return binding.run(feeds)

    def check(self, feeds: Feeds, outputs: Sequence[Array]) -> None:
        """Raises `Unbindable` unless these feeds give these outputs here too, up to a device's rounding."""
        for spec, expected, got in zip(self._signature.outputs, outputs, self(feeds), strict=True):
            same_kind = (got.shape, got.dtype) == (expected.shape, expected.dtype)
            if not same_kind or not np.allclose(got, expected, rtol=1e-2, atol=1e-2, equal_nan=True):
                raise Unbindable(f"output {spec.name} of a bound run is not what a plain run gives")

    def let_go(self) -> None:
        """Give up the buffers made so far: those who run next make their own."""
        self._mine = threading.local()


class Binding:
    """One lane's binding, staging and place for outputs. For one thread; a failed run leaves it as good as before."""

    def __init__(self, session: ort.InferenceSession, signature: Signature, memory: DeviceMemory, rows: int) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._inputs = [Staging(spec, memory, rows) for spec in signature.inputs]
        self._outputs = [Outlet(spec, at, memory, rows) for at, spec in enumerate(signature.outputs)]

    def run(self, feeds: Feeds) -> list[Array]:
        for staging in self._inputs:
            staging.bring(self._binding, feeds)
        rows = len(feeds[self._inputs[0].name])
        for output in self._outputs:
            output.bind(self._binding, rows)
        self._session.run_with_iobinding(self._binding)
        return [output.take(self._binding) for output in self._outputs]


class Staging:
    """Where one input waits: page-locked memory here, and the device's beside it."""

    def __init__(self, spec: TensorSpec, memory: DeviceMemory, rows: int) -> None:
        self.name = spec.name
        self._dtype = spec.dtype
        self._memory = memory
        self._grow((spec.row_bytes or 1) * rows)

    def bring(self, binding: ort.IOBinding, feeds: Feeds) -> None:
        """Copy the feed to the device and bind it there. Raises `ValueError` for one that does not fit the input."""
        array = feeds.get(self.name)
        if array is None or array.dtype != self._dtype or not array.ndim:
            raise ValueError(f"input {self.name} is missing, or no {self._dtype} with a batch axis")
        if array.nbytes > self._host.nbytes:
            self._grow(array.nbytes)
        used = self._host[: array.nbytes]
        np.copyto(used.view(self._dtype).reshape(array.shape), array)
        self._memory.upload(used, self._near)
        binding.bind_input(self.name, *self._memory.device, self._dtype, array.shape, self._near.data_ptr())

    def _grow(self, size: int) -> None:
        near, self._host = self._memory.near(_room(size)), self._memory.host(_room(size))
        self._near = near


class Outlet:
    """Where one output comes back to.

    If its shape follows from the rows, that is page-locked memory, from which each batch gets a copy. Else ONNX Runtime
    chooses memory for each run, and that is handed on as it is.
    """

    def __init__(self, spec: TensorSpec, at: int, memory: DeviceMemory, rows: int) -> None:
        self._spec, self._at, self._memory = spec, at, memory
        self._host = None if spec.row_bytes is None else memory.host(_room(spec.row_bytes * rows))
        self._bound: Array | None = None

    def bind(self, binding: ort.IOBinding, rows: int) -> None:
        if self._host is None:
            # Anew for each run: bound already, it would be written over what the loop still reads.
            binding.bind_output(self._spec.name, "cpu")
        elif self._bound is None or len(self._bound) != rows:
            bound = self._place(self._host, rows)
            binding.bind_output(self._spec.name, "cpu", 0, bound.dtype, bound.shape, bound.ctypes.data)
            self._bound = bound

    def take(self, binding: ort.IOBinding) -> Array:
        """What the last run gave, in an array that no later one writes to."""
        output: Array = binding.get_outputs()[self._at].numpy() if self._bound is None else self._bound.copy()
        return output

    def _place(self, host: Bytes, rows: int) -> Array:
        size = rows * (self._spec.row_bytes or 0)
        if size > host.nbytes:
            host = self._host = self._memory.host(_room(size))
        return host[:size].view(self._spec.dtype).reshape(rows, *[d or 0 for d in self._spec.dims])


def _room(size: int) -> int:
    """The next power of two: where rows come to be more one by one, new memory is seldom asked of the system."""
    return 1 << max(0, size - 1).bit_length()

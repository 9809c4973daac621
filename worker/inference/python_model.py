"""A model in Python: the operator's own file, which is served as an ONNX file is. docs/models.md describes it.

`PythonSession` has the methods of ONNX Runtime's session that this room calls, so that the rest of it knows no
difference. Arrays are copied on their way in and on their way out: `predict` may write to its inputs, whose rows run
again if the batch fails, and may return the same array each time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from worker.core.failures import BadConfiguration, RunFailure, listed
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.declared_signature import TYPES, spec_of
from worker.inference.facts import Device
from worker.inference.operator_file import OperatorFile, Unfit, as_declared, cure, lacks_memory
from worker.inference.session import CUDA_DRIVER, Opened, RunFailed, WrongOutput

if TYPE_CHECKING:
    from worker.settings import ModelSettings

_NAME = "served_model"  # of the file as a module: its own name may be that of a library
_CLASS = "Model"
_LOADED = Path("/proc/self/maps")  # the libraries of this process, among others
_HOW = "docs/models.md#a-model-in-python"
_OF_ONNX: Mapping[str, Any] = {
    "device": "auto",
    "providers": (),
    "provider_options": {},
    "gpu_mem_limit": None,
    "custom_ops": (),
}
_EXAMPLE = '{"x": ("FP32", [None, 4])}'


class Node(NamedTuple):
    """An input or output as ONNX Runtime describes it, except for the datatype."""

    name: str
    datatype: str
    shape: Sequence[int | str | None]

    @property
    def type(self) -> str:
        return TYPES.get(self.datatype, self.datatype)


def open_python(settings: ModelSettings, content: str | bytes) -> Opened:
    """Make a session of the settings' file, and have it load what it needs. Raises `BadConfiguration`.

    Libraries that it imports use as many threads for OpenMP as the settings say, unless the environment says otherwise.
    """
    path = settings.path
    if idle := [key for key, default in _OF_ONNX.items() if getattr(settings, key) != default]:
        raise BadConfiguration(
            f"WORKER_MODEL__{idle[0].upper()} has no effect, for a model in Python chooses its device and "
            "operators: leave it out"
        )
    if settings.intra_op_num_threads:
        os.environ.setdefault("OMP_NUM_THREADS", str(settings.intra_op_num_threads))
    session = PythonSession(path, content)
    session.load()
    return Opened(session, Device("python", f"{path.name} chooses its device itself"))


class PythonSession:
    """Owns the operator's model. Several threads may call `run` at once, if the model allows it."""

    def __init__(self, path: Path, content: str | bytes) -> None:
        """Execute the file, and read what its class declares; nothing is loaded. Raises `BadConfiguration`."""
        self._file = OperatorFile(path, _NAME)
        self._class = self._found(content)
        self._model: Any = None
        self._inputs, self._outputs = self._declared("inputs"), self._declared("outputs")
        self._specs = {node.name: spec_of("output", node) for node in self._outputs}

    def load(self) -> None:
        """Make the model and call its `load`, if it has one. Raises `BadConfiguration`."""
        try:
            with redirect_stdout(sys.stderr):
                self._model = self._class()
                if hasattr(self._model, "load"):
                    self._model.load(self._file.path.absolute().parent)
        except (Exception, SystemExit) as error:
            raise BadConfiguration(f"{_CLASS}.load fails: {self._file.told(error)}{cure(error)}") from error

    def get_inputs(self) -> Sequence[Node]:
        return self._inputs

    def get_outputs(self) -> Sequence[Node]:
        return self._outputs

    def get_providers(self) -> Sequence[str]:
        """CUDA's driver, if a library that the model uses has loaded it: then it runs on a GPU."""
        with suppress(OSError):
            return [CUDA_DRIVER] * (CUDA_DRIVER in _LOADED.read_text())
        return ()

    def run(self, names: Sequence[str], feeds: Mapping[str, Array], _: Any = None, /) -> Sequence[Array]:
        """These outputs of `predict`, as they are declared. Raises `RunFailed`, or the model's own lack of memory."""
        try:
            given = self._model.predict({name: array.copy() for name, array in feeds.items()})
        except Exception as error:
            if lacks_memory(error):  # then batches get smaller
                raise
            code, message, logged = self._file.fault(error)
            raise RunFailed(self._file.told(error), RunFailure(message, code, logged)) from error
        if not isinstance(given, Mapping):
            raise WrongOutput(f"predict gave {type(given).__name__}, and a dict of arrays is needed ({_HOW})")
        if missing := [name for name in names if name not in given]:
            raise WrongOutput(f"predict gave no output {listed(missing)}; it gave {listed(given) or 'none'}")
        return [_as_declared(self._specs[name], given[name]) for name in names]

    def _found(self, content: str | bytes) -> type:
        """The class of the file."""
        found = getattr(self._file.executed(content), _CLASS, None)
        if not isinstance(found, type) or not callable(getattr(found, "predict", None)):
            what = "class Model" if found is None else f"{_CLASS}.predict(self, feeds)"
            raise BadConfiguration(f"it has no {what}, by which a file in Python is served ({_HOW})")
        return found

    def _declared(self, side: str) -> Sequence[Node]:
        declared = getattr(self._class, side, None)
        try:
            nodes = [Node(name, datatype, shape) for name, (datatype, shape) in dict(declared or {}).items()]
        except (TypeError, ValueError):
            nodes = []
        if not nodes or not all(_is_sound(*node) for node in nodes):
            raise BadConfiguration(
                f"{_CLASS}.{side} must name each with its datatype and its shape, None for any size, the rows first, "
                f"such as {side} = {_EXAMPLE} ({_HOW})"
            )
        return nodes


def _is_sound(name: Any, datatype: Any, shape: Any) -> bool:
    is_named = isinstance(name, str) and isinstance(datatype, str) and isinstance(shape, list | tuple)
    return is_named and all(d is None or isinstance(d, str) or (isinstance(d, int) and d > 0) for d in shape)


def _as_declared(spec: TensorSpec, given: Any) -> Array:
    """A copy of an output in its declared type. Raises `WrongOutput` if dimensions or values do not fit that."""
    try:
        return as_declared(spec, given, (None, *spec.dims))
    except Unfit as unfit:
        raise WrongOutput(f"output {spec}: predict gave {unfit}") from unfit

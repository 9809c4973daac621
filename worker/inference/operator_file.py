"""A file in Python that the operator wrote: a model, or functions of records. It is executed here, and nowhere else.

An error that it raises is told to its author with the line of the file, and to a publisher without. The log gets type
and line, and no message, for it may quote a request. The arrays that it returns are judged by what is declared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from worker.core.failures import BadConfiguration, Code, RowFault
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.onnxruntime_errors import is_out_of_memory, readable

T = TypeVar("T")


class OperatorFile:
    """The file at a path. Nothing is executed before it is asked for."""

    def __init__(self, path: Path, name: str) -> None:
        """`name` is that of its module, because its own name may be that of a library."""
        self.path = path
        self._name = name

    def executed(self, content: str | bytes) -> ModuleType:
        """Execute this content of the file. Raises `BadConfiguration`.

        Modules next to the file can be imported, also later.
        """
        module = sys.modules[self._name] = ModuleType(self._name)
        module.__file__ = str(self.path)
        if (folder := str(self.path.absolute().parent)) not in sys.path:
            sys.path.append(folder)
        try:
            with redirect_stdout(sys.stderr):  # a command may write JSON there
                exec(compile(content, str(self.path), "exec", dont_inherit=True), vars(module))  # noqa: S102  # the operator named it
        except (Exception, SystemExit) as error:
            raise BadConfiguration(f"it cannot be imported: {self.told(error)}{cure(error)}") from error
        return module

    def tried(self, call: Callable[..., T], *arguments: Any) -> T | RowFault:
        """The result of this call, or the fault if it raises. Raises its lack of memory: smaller batches may run."""
        try:
            return call(*arguments)
        except Unfit as unfit:
            return RowFault(Code.INTERNAL, str(unfit))
        except Exception as error:
            if lacks_memory(error):
                raise
            return self.fault(error)

    def fault(self, error: Exception) -> RowFault:
        """The failure of a request whose run raised this: a `ValueError` is the request's own fault."""
        kind, place = type(error).__name__, self._place(error)
        logged = f"{kind} at {place}" if place else kind
        if isinstance(error, ValueError):
            return RowFault(Code.INVALID_ARGUMENT, readable(error), logged)
        return RowFault(Code.INTERNAL, _typed(error), logged)

    def told(self, error: BaseException) -> str:
        """One line for the file's author."""
        return f"{self._place(error) or self.path.name}: {_typed(error)}"

    def _place(self, error: BaseException) -> str:
        """The innermost line of the file that this error came through, as `model.py:12`; empty if it did not."""
        lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == str(self.path)]
        return f"{self.path.name}:{lines[-1]}" if lines else ""


def lacks_memory(error: Exception) -> bool:
    """True if the error says that memory ran out. A message of another kind may quote a text of a request."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and is_out_of_memory(error))


def cure(error: BaseException) -> str:
    """The cure of a failed start, behind its message; empty where the message has to do."""
    if isinstance(error, ModuleNotFoundError):
        return "; install it where the worker runs"
    has_no_memory = isinstance(error, MemoryError) or "failed to map segment" in str(error)  # the loader's words
    return "; it needs more memory (WORKER_MODEL__MEMORY_LIMIT, or the container's)" if has_no_memory else ""


def _typed(error: BaseException) -> str:
    kind, said = type(error).__name__, readable(error)
    return kind if said == kind else f"{kind}: {said}"


class Unfit(Exception):
    """A value that the file returned is not as declared. The message says what it is."""


def as_declared(spec: TensorSpec, given: Any, shape: tuple[int | None, ...]) -> Array:
    """A copy of what was given, as an array of this shape and of the declared datatype.

    A number that becomes a float is rounded, as one in a request is; else it must stay as it is. Raises `Unfit`.
    """
    if type(given) is np.ndarray and given.shape == shape and given.dtype == spec.dtype and not spec.is_text:
        return given.copy()  # the usual case, for which the rest takes 2 µs (2026-11)
    try:
        array = np.asarray(given)
    except Exception as error:  # a tensor on a GPU, lists of unequal lengths
        raise Unfit(f"no array: {readable(error)}") from error
    fits = array.ndim == len(shape) and all(want in (None, got) for want, got in zip(shape, array.shape, strict=True))
    cast = (_texts if spec.is_text else _numbers)(spec, array) if fits else None
    if cast is None:
        values = " (its values do not fit)" if fits and array.dtype.kind in "biufO" else ""
        raise Unfit(f"{array.dtype} of shape {list(array.shape)}{values}")
    return cast


def _numbers(spec: TensorSpec, array: Array) -> Array | None:
    """The numbers in the declared type; None if they are no numbers, or cannot stay as they are."""
    if array.dtype.kind not in "biuf":
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # a float that becomes infinite is judged as such, later
        cast = array.astype(spec.dtype, order="C")
    return cast if spec.is_float or array.dtype == spec.dtype or np.array_equal(cast, array) else None


def _texts(_: TensorSpec, array: Array) -> Array | None:
    """The texts as an array of `str`; None if it holds something else, or what UTF-8 cannot."""
    if array.dtype.kind not in "UTO":
        return None
    texts = array.astype(object, order="C")
    try:
        "".join(texts.flat).encode()
    except (TypeError, UnicodeEncodeError):
        return None
    return texts

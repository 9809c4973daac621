"""One output's rows in a .npy file, written in place as they come; its name says `partial` until all are there.

    header, always 128 bytes long │ row 0 │ row 1 │ …

The header is written last. So what a run that was stopped leaves behind is a whole .npy file of fewer rows, and what
one that was killed leaves is none: numpy refuses it.
"""

from __future__ import annotations

import io
import math
import os
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from worker.core.failures import BadConfiguration, Incomplete
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.tools.score.files.claims import claimed, is_still


class NpyFile:
    """`rows` rows of one output, in any order. Owns the file, and claims it.

    Where the model leaves the shape of a row open, that of the first one holds for all.
    """

    def __init__(self, path: Path, spec: TensorSpec, rows: int) -> None:
        """Raises `BadConfiguration` when there can be no such file."""
        if spec.is_text:
            raise BadConfiguration(
                f"output {spec.name} is text, which .npy holds only pickled: write JSON lines instead"
            )
        self.path = path
        self.partial = partial(path)
        self._spec = spec
        self.dtype = spec.dtype
        self._rows = rows
        self._dims: tuple[int, ...] | None = None
        self._refused: list[int] = []  # rows that came before the shape was known
        self._row_bytes = self._start = 0
        self._descriptor = claimed(self.partial)
        if None not in spec.dims:
            try:
                self._begin(tuple(d for d in spec.dims if d is not None))
            except BaseException:
                self.close(0)
                raise

    def write(self, row: int, array: Array) -> None:
        """These rows, of shape (rows, *dims). Raises `Incomplete` when they cannot be written."""
        if self._dims is None:
            self._begin(array.shape[1:])
        if array.shape[1:] != self._dims:
            raise Incomplete(
                f"output {self._spec.name}: row {row} has shape {list(array.shape[1:])} and those before it "
                f"{list(self._dims or ())}, which one array cannot hold: write JSON lines instead"
            )
        self._put(self._start + row * self._row_bytes, array.tobytes())

    def refuse(self, row: int) -> None:
        """That row has no result: NaN where there is one, else zeros."""
        if self._dims is None:
            self._refused.append(row)
        else:
            self.write(row, np.full((1, *self._dims), np.nan if self._spec.is_float else 0, self.dtype))

    def close(self, rows: int) -> Path | None:
        """Keep the first `rows` rows: under the file's own name if these are all. None if there is nothing to keep."""
        try:
            if not is_still(self.partial, self._descriptor):
                raise Incomplete(f"{self.path}: cannot be finished: {self.partial} was removed meanwhile")
            if self._dims is None or not rows:
                self.partial.unlink()
                return None
            self._put(0, self._header(rows, self._dims))
            if rows == self._rows:
                return self.partial.replace(self.path)
            os.ftruncate(self._descriptor, self._start + rows * self._row_bytes)
        except OSError as error:
            raise Incomplete(f"{self.path}: cannot be finished: {error.strerror}") from error
        finally:
            os.close(self._descriptor)
        return self.partial

    def _begin(self, dims: tuple[int, ...]) -> None:
        self._start = len(self._header(self._rows, dims))
        self._row_bytes = math.prod(dims) * self.dtype.itemsize
        disk = os.fstatvfs(self._descriptor)
        needed, free = self._start + self._rows * self._row_bytes, disk.f_bavail * disk.f_frsize
        if needed > free:
            raise BadConfiguration(f"{self.path} will have {needed:,} bytes, and its disk has only {free:,} left")
        self._dims = dims
        for row in self._refused:
            self.refuse(row)
        self._refused.clear()

    def _header(self, rows: int, dims: tuple[int, ...]) -> bytes:
        header = io.BytesIO()
        descr = npy.dtype_to_descr(self.dtype)
        npy.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": (rows, *dims)})
        return header.getvalue()

    def _put(self, at: int, content: bytes) -> None:
        view = memoryview(content)
        try:
            while view:
                written = os.pwrite(self._descriptor, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            raise Incomplete(f"{self.partial}: cannot be written at byte {at:,}: {error.strerror}") from error


def partial(path: Path) -> Path:
    """The name of a file that is not finished."""
    return path.with_name(f"{path.stem}.partial{path.suffix}")

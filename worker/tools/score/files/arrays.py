"""The arrays of a .npy or .npz file, held against a model's inputs and read by pieces. Nothing is ever unpickled.

Read by position, not mapped: a file that shrinks meanwhile is a sentence instead of a bus error, and its pages do not
count as this process's memory. All that can be wrong with a file is found before the first inference.
"""

from __future__ import annotations

import math
import os
import struct
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from worker.codecs.encodings.elements import to_bytes
from worker.core.damaged_files import DAMAGED
from worker.core.failures import BadConfiguration, Incomplete
from worker.core.listing import listed
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.tools.closing import Closing

_MOST_SAID = 100  # characters of a reason
_ZIP_NAME_LENGTHS = struct.Struct("<26xHH")  # of a local file header: the lengths of name and extra field behind it


class Header(NamedTuple):
    """What a .npy says of itself, and where its elements begin and end in the file that holds it."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]
    start: int
    end: int


class ArrayColumn(NamedTuple):
    """The rows of one input. `dtype` is the file's: the input's own but for the byte order, or text of fixed width."""

    spec: TensorSpec
    dims: tuple[int, ...]
    dtype: np.dtype[Any]
    file: BinaryIO
    start: int
    row_bytes: int

    def read(self, row: int, rows: int) -> bytes:
        """These rows as the wire has them.

        Raises `Incomplete` when the file has become too short or unreadable, or its text is none.
        """
        raw = self._bytes(self.start + row * self.row_bytes, rows * self.row_bytes)
        if self.spec.is_text:
            self._check_text(raw, row, rows)
            return to_bytes(np.frombuffer(raw, self.dtype).astype(object))
        return (
            raw if self.dtype == self.spec.dtype else np.frombuffer(raw, self.dtype).astype(self.spec.dtype).tobytes()
        )

    def _check_text(self, raw: bytes, row: int, rows: int) -> None:
        codes = np.frombuffer(raw, np.dtype("u4").newbyteorder(self.dtype.byteorder))
        if np.any((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes <= 0xDFFF))):
            where = f"{self.file.name}: rows {row:,} to {row + rows - 1:,}, counted from 0"
            raise Incomplete(f"{where}, hold characters that Unicode has not")

    def _bytes(self, at: int, size: int) -> bytes:
        try:
            raw = os.pread(self.file.fileno(), size, at)
            while len(raw) < size and (more := os.pread(self.file.fileno(), size - len(raw), at + len(raw))):
                raw += more
        except OSError as error:
            raise Incomplete(f"{self.file.name}: cannot be read at byte {at}: {error.strerror}") from error
        if len(raw) < size:
            raise Incomplete(f"{self.file.name} has become shorter while it was read: it ends before byte {at + size}")
        return raw


class Arrays(Closing):
    """The file, open: one column for each of the model's inputs that it holds, all with so many `rows`."""

    def __init__(self, path: Path, signature: Signature) -> None:
        """Raises `BadConfiguration`, one sentence with the cure, for whatever this model cannot be asked."""
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise BadConfiguration(f"{path}: cannot be read: {error.strerror}") from error
        try:
            self.columns, self.rows = _columns(self._file, path, signature)
            # Rows that need no words: of the only input that must be there.
            self.are_plain = signature.raw_input is not None and len(self.columns) == 1
        except BaseException:
            self._file.close()
            raise

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of all columns, as the file has them."""
        return sum(column.row_bytes for column in self.columns)

    def close(self) -> None:
        self._file.close()


def _columns(file: BinaryIO, path: Path, signature: Signature) -> tuple[Sequence[ArrayColumn], int]:
    if (members := _members(file, path)) is not None:
        headers = members
        missing = {spec.name for spec in signature.required} - headers.keys()
        if missing or headers.keys() - {spec.name for spec in signature.inputs}:
            raise BadConfiguration(
                f"{path} holds {listed(headers)}; the model takes {signature.takes}: save those arrays by name"
            )
    elif len(signature.required) > 1:
        names = listed(f"{spec.name}=..." for spec in signature.inputs)
        raise BadConfiguration(f"{path} holds one array and the model takes {signature.takes}: np.savez(FILE, {names})")
    else:
        file.seek(0, os.SEEK_END)
        headers = {signature.required[0].name: _header(file, str(path), 0, file.tell())}
    columns = [_column(file, path, spec, headers[spec.name]) for spec in signature.inputs if spec.name in headers]
    counts = {name: header.shape[0] for name, header in headers.items()}
    if len(set(counts.values())) > 1:
        shown = listed(f"{name}: {rows}" for name, rows in counts.items())
        raise BadConfiguration(f"{path}: all arrays must have the same number of rows, got {shown}")
    return columns, next(iter(counts.values()))


def _members(file: BinaryIO, path: Path) -> dict[str, Header] | None:
    """The arrays of a .npz by their names; None for another file."""
    try:
        if not zipfile.is_zipfile(file):
            return None
        with zipfile.ZipFile(file) as archive:
            return {name: _header(file, f"{path}: {name}", *at) for name, at in _places(file, path, archive)}
    except DAMAGED as error:
        raise _refusal(f"{path} is a damaged .npz file", error) from error


def _places(file: BinaryIO, path: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, tuple[int, int]]]:
    """Where each member begins and ends. Stored ones only: in a compressed one no row can be found."""
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if member.compress_type != zipfile.ZIP_STORED:
            raise BadConfiguration(f"{path}: {name} is compressed; save it with np.savez, not np.savez_compressed")
        file.seek(member.header_offset)
        lengths = _ZIP_NAME_LENGTHS.unpack(file.read(_ZIP_NAME_LENGTHS.size))
        start = member.header_offset + _ZIP_NAME_LENGTHS.size + sum(lengths)
        yield name, (start, start + member.file_size)


def _header(file: BinaryIO, name: str, start: int, end: int) -> Header:
    file.seek(start)
    try:
        version = npy.read_magic(file)
        # Version 3 differs from 2 in nothing but the names of fields, and arrays with fields are no tensors.
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(file)
    except DAMAGED as error:
        raise _refusal(f"{name} is no array in numpy's format", error) from error
    return Header(shape, is_fortran, dtype, file.tell(), end)


def _refusal(fact: str, error: BaseException) -> BadConfiguration:
    """With the first words of the reason: numpy's go on for lines, and quote the file."""
    said = next((word for word in error.args if isinstance(word, str)), type(error).__name__)
    reason = said.partition("\n")[0][:_MOST_SAID]
    return BadConfiguration(f"{fact}: {reason}; copy it again, or save it again")


def _column(file: BinaryIO, path: Path, spec: TensorSpec, header: Header) -> ArrayColumn:
    shape, is_fortran, dtype, start, end = header
    where = f"{path} holds {dtype} of shape {list(shape)}"
    if dtype.hasobject:
        raise BadConfiguration(
            f"{path} holds Python objects, which are pickled and never read: save an array of {spec}"
        )
    dims = shape[1:]
    fits = len(shape) == len(spec.dims) + 1 and all(w in (None, d) for w, d in zip(spec.dims, dims, strict=True))
    if not fits:
        raise BadConfiguration(f"{where}; the model takes {spec}{_as_rows(shape, spec.dims)}")
    if dtype.newbyteorder("<") != spec.dtype and not (spec.is_text and dtype.kind == "U"):
        wanted = "str" if spec.is_text else spec.dtype.name
        raise BadConfiguration(f"{where}; the model takes {spec}: save array.astype({wanted!r})")
    if min(shape) < 1 or not dtype.itemsize:
        raise BadConfiguration(f"{where}: there is nothing to score")
    if is_fortran and len(shape) > 1:
        raise BadConfiguration(f"{where} in Fortran order, column by column: save np.ascontiguousarray(array)")
    row_bytes = dtype.itemsize * math.prod(dims)
    if end - start < shape[0] * row_bytes:
        raise BadConfiguration(
            f"{where}, but only {(end - start) // row_bytes} rows of it: it was cut off, copy it again"
        )
    return ArrayColumn(spec, dims, dtype, file, start, row_bytes)


def _as_rows(shape: Sequence[int], dims: Sequence[int | None]) -> str:
    """How to save one row that lacks the batch axis, or numbers in one line that make up rows; otherwise nothing."""
    if len(shape) == len(dims) and all(w in (None, d) for w, d in zip(dims, shape, strict=True)):
        return ", and this is one row without the batch's axis: save array[np.newaxis]"
    known = [dim for dim in dims if dim is not None]
    if len(shape) == 1 and len(known) == len(dims) and shape[0] and shape[0] % (math.prod(known) or 1) == 0:
        return f": save array.reshape(-1, {', '.join(map(str, known))})" if known else ""
    return ""

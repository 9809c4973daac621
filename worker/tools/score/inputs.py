"""Files to score: rows of a .npy or .npz, held against the model's inputs, and lines of JSON from a file or a pipe.

What is wrong with an array file is said before the first inference, and nothing is ever unpickled. Files are read from
beginning to end, chunk by chunk, so memory does not grow with them.
"""

from __future__ import annotations

import math
import os
import select
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from worker.codecs.encodings import oip_json
from worker.codecs.encodings.oip import Output
from worker.codecs.wire_contract import HEAD_LENGTH, JSON, OCTETS
from worker.core.failures import BadConfiguration, Incomplete, listed
from worker.core.foreign_values import DAMAGED
from worker.core.records import Array, Partition, Record
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

LINES_BLOCK = 256 * 1024  # bytes of one read
LINES_BYTES = 16 * 1024 * 1024  # of a chunk, and a block more
# How long a silent pipe is waited for before answers are written and Ctrl-C is heard, seconds.
GLANCE = 0.05
# Answers are lines too, so only those may be asked for that are JSON to their end.
LINE_HEADERS = (("content-type", JSON.encode()), ("accept", JSON.encode()))


class Rows(NamedTuple):
    """Some rows of an array file, from this number on: an array for each input. `accept`: the answer's content type."""

    source: Partition
    number: int
    specs: Sequence[TensorSpec]
    arrays: Sequence[Array]
    accept: str

    @property
    def total(self) -> int:
        return len(self.arrays[0])

    def parts(self, rows: int) -> Iterator[Rows]:
        """The rows, at most so many in each part."""
        for at in range(0, self.total, rows):
            arrays = [array[at : at + rows] for array in self.arrays]
            yield self._replace(number=self.number + at, arrays=arrays)

    def record(self) -> Record:
        """All in one request; its offset is the first one's number."""
        raws = [array.tobytes() for array in self.arrays]
        head = oip_json.request([Output(*tensor) for tensor in zip(self.specs, self.arrays, raws, strict=True)])
        accept = ("accept", self.accept.encode())
        headers = (("content-type", OCTETS.encode()), (HEAD_LENGTH, b"%d" % len(head)), accept)
        return Record(self.source, self.number, None, b"".join([head, *raws]), headers, None)


class Column(NamedTuple):
    """The rows of one input in a file. `dtype` is the file's: the input's in any byte order."""

    spec: TensorSpec
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    file: IO[bytes]

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape[1:])

    def read(self, rows: int) -> Array:
        """The next rows. Raises `Incomplete` when it ends too soon."""
        try:
            array = np.frombuffer(self.file.read(rows * self.row_bytes), self.dtype)
            return array.astype(self.spec.dtype, copy=False).reshape(rows, *self.shape[1:])
        except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise Incomplete(f"{self.file.name}: cannot be read to its end: {error}") from error


class RowFile:
    """An open .npy or .npz: a column for each of the model's inputs that it holds, each with `total` rows."""

    def __init__(self, path: Path, name: str, signature: Signature, accept: str, closing: ExitStack) -> None:
        """Raises `BadConfiguration`, one sentence with the cure, for whatever this model cannot be asked."""
        try:
            self._columns = _columns(path, signature, closing)
        except DAMAGED as error:
            said = error.strerror if isinstance(error, OSError) else None
            reason = said or str(error).partition("\n")[0][:100] or type(error).__name__
            raise BadConfiguration(f"{path}: cannot be read as an array file: {reason}") from error
        self.total = self._columns[0].shape[0]
        self.row_bytes = sum(column.row_bytes for column in self._columns)
        self._empty = Rows(Partition(name, 0), 0, [column.spec for column in self._columns], (), accept)

    def chunks(self, at_once: Callable[[], int]) -> Iterator[Rows]:
        """All of it, a number of rows at once that may change on the way. Raises `Incomplete` as `Column.read`."""
        at = 0
        while at < self.total:
            rows = min(at_once(), self.total - at)
            yield self._empty._replace(number=at, arrays=[column.read(rows) for column in self._columns])
            at += rows


class LineFile:
    """Lines of an open file or pipe; each is a request, an empty one too, and its number, from 1, the offset.

    No line is held that is longer than a request may be. Owns its place in the file, not the file.
    """

    def __init__(self, descriptor: int, name: str, longest: int) -> None:
        """`longest`: bytes of a line that may still be a request."""
        self._descriptor = descriptor
        self._partition = Partition(name, 0)
        self._longest = longest
        self._line = bytearray()  # that has no end yet, unless it is too long already
        self._length = 0
        self._lines = 0
        self._is_read_up = False

    def chunks(self, at_once: Callable[[], int]) -> Iterator[list[Record]]:
        """The lines, so many at once or a few more; of a pipe what is there, and none while it is silent."""
        while not self._is_read_up:
            records: list[Record] = []
            wanted, size, wait = at_once(), 0, GLANCE
            while len(records) < wanted and size < LINES_BYTES and (block := self._read(wait)) is not None:
                records += self._ended(block)
                size, wait = size + len(block), 0.0
            yield records

    def _read(self, wait: float) -> bytes | None:
        """What comes next; None when nothing does within so many seconds, or all is read."""
        if self._is_read_up or not select.select([self._descriptor], [], [], wait)[0]:
            return None
        try:
            return os.read(self._descriptor, LINES_BLOCK)
        except OSError as error:
            raise Incomplete(f"{self._partition.topic}: cannot be read: {error.strerror}") from error

    def _ended(self, block: bytes) -> Iterator[Record]:
        """The lines that end in this block; an empty block is the file's end, and ends the last line."""
        *ended, rest = block.split(b"\n")
        for part in ended:
            self._grow(part)
            yield self._end()
        self._grow(rest)
        self._is_read_up = not block
        if self._is_read_up and self._length:
            yield self._end()

    def _grow(self, part: bytes) -> None:
        self._length += len(part)
        if self._length <= self._longest:
            self._line += part
        else:
            self._line.clear()

    def _end(self) -> Record:
        self._lines += 1
        value, unreadable = bytes(self._line), None
        if self._length > self._longest:
            unreadable = f"the value has {self._length} bytes, at most {self._longest} are taken"
        self._line.clear()
        self._length = 0
        return Record(self._partition, self._lines, None, value, LINE_HEADERS, None, unreadable)


def _columns(path: Path, signature: Signature, closing: ExitStack) -> Sequence[Column]:
    files = _files(path, signature, closing)
    missing = {spec.name for spec in signature.required} - files.keys()
    if missing or files.keys() - {spec.name for spec in signature.inputs}:
        raise BadConfiguration(
            f"{path} holds {listed(files)}; the model takes {signature.takes}: save those arrays by name"
        )
    columns = [_column(path, spec, files[spec.name]) for spec in signature.inputs if spec.name in files]
    if len({column.shape[0] for column in columns}) > 1:
        shown = listed(f"{column.spec.name}: {column.shape[0]}" for column in columns)
        raise BadConfiguration(f"{path}: all arrays must have the same number of rows, got {shown}")
    return columns


def _files(path: Path, signature: Signature, closing: ExitStack) -> dict[str, IO[bytes]]:
    """The open arrays by the name of the input: the members of a .npz, or the only one of a .npy."""
    if zipfile.is_zipfile(path):
        archive = closing.enter_context(zipfile.ZipFile(path))
        return {
            member.removesuffix(".npy"): closing.enter_context(archive.open(member)) for member in archive.namelist()
        }
    if len(signature.required) > 1:
        names = listed(f"{spec.name}=..." for spec in signature.inputs)
        raise BadConfiguration(f"{path} holds one array and the model takes {signature.takes}: np.savez(FILE, {names})")
    return {signature.required[0].name: closing.enter_context(path.open("rb", buffering=0))}


def _column(path: Path, spec: TensorSpec, file: IO[bytes]) -> Column:
    # Version 3 differs from 2 in nothing but the names of fields, and arrays with fields are no tensors.
    read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    where = f"{path} holds {dtype} of shape {list(shape)}"
    if spec.is_text:
        raise BadConfiguration(f"{where}; the model takes {spec}: text comes in lines of JSON")
    if len(shape) != len(spec.dims) + 1 or any(w not in (None, d) for w, d in zip(spec.dims, shape[1:], strict=True)):
        raise BadConfiguration(f"{where}; the model takes {spec}, with the batch's axis first")
    if dtype.newbyteorder("<") != spec.dtype:
        raise BadConfiguration(f"{where}; the model takes {spec}: save array.astype({spec.dtype.name!r})")
    if min(shape) < 1:
        raise BadConfiguration(f"{where}: there is nothing to score")
    if is_fortran and len(shape) > 1:
        raise BadConfiguration(f"{where} in Fortran order, column by column: save np.ascontiguousarray(array)")
    column = Column(spec, shape, dtype, file)
    if not isinstance(file, zipfile.ZipExtFile):  # which is only there whole
        rows = (os.fstat(file.fileno()).st_size - file.tell()) // column.row_bytes
        if rows < shape[0]:
            raise BadConfiguration(f"{where}, but only {rows} rows of it: it was cut off, copy it again")
    return column

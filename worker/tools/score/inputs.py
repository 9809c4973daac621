"""Files to score: rows of a .npy or .npz, held against the model's inputs, and lines of JSON from a file or a pipe.

What is wrong with an array file is said before the first inference, and nothing is ever unpickled. A .npy and lines are
read chunk by chunk, so memory does not grow with them.
"""

from __future__ import annotations

import os
import select
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

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

# Pages of a file that were read count as the process's memory until their mapping is gone: after so many bytes.
MAPPED_BYTES = 64 * 1024 * 1024
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


class RowFile:
    """A .npy, which is mapped, or a .npz: an array for each of the model's inputs that it holds, of `total` rows."""

    def __init__(self, path: Path, name: str, signature: Signature, accept: str) -> None:
        """Raises `BadConfiguration`, one sentence with the cure, for whatever this model cannot be asked."""
        try:
            arrays = _arrays(path, signature)
        except DAMAGED as error:
            said = error.strerror if isinstance(error, OSError) else None
            reason = said or str(error).partition("\n")[0][:100] or type(error).__name__
            raise BadConfiguration(f"{path}: cannot be read as an array file: {reason}") from error
        specs = [spec for spec in signature.inputs if spec.name in arrays]
        for spec in specs:
            _check(path, spec, arrays[spec.name])
        if len({len(array) for array in arrays.values()}) > 1:
            shown = listed(f"{name}: {len(array)}" for name, array in arrays.items())
            raise BadConfiguration(f"{path}: all arrays must have the same number of rows, got {shown}")
        self._all = Rows(Partition(name, 0), 0, specs, [arrays[spec.name] for spec in specs], accept)
        self.total = self._all.total
        self.row_bytes = sum(array.nbytes for array in self._all.arrays) // self.total

    def chunks(self, at_once: Callable[[], int]) -> Iterator[Rows]:
        """All of it, a number of rows at once that may change on the way. Raises `Incomplete`."""
        at = mapped_to = 0
        mapped: Sequence[Array] = ()
        while at < self.total:
            if at >= mapped_to:
                mapped, mapped_to = self._mapped(), at + max(1, MAPPED_BYTES // self.row_bytes)
            end = at + at_once()
            pairs = zip(mapped, self._all.specs, strict=True)
            arrays = [np.ascontiguousarray(array[at:end], spec.dtype) for array, spec in pairs]
            yield self._all._replace(number=at, arrays=arrays)
            at = end

    def _mapped(self) -> Sequence[Array]:
        """The arrays in a new mapping, where they are mapped."""
        try:
            return [np.asarray(_again(array)) for array in self._all.arrays]
        except DAMAGED as error:
            raise Incomplete(f"{self._all.source.topic}: cannot be read to its end: {error}") from error


class LineFile:
    """Lines of an open file or pipe; each is a request, an empty one too, and its number, from 1, the offset.

    No line is held that is longer than a request may be. Owns its place in the file, not the file.
    """

    def __init__(self, descriptor: int, name: str, longest: int) -> None:
        """`longest`: bytes of a line that may still be a request."""
        self._descriptor, self._longest = descriptor, longest
        self._partition, self._lines = Partition(name, 0), 0
        self._line, self._length = bytearray(), 0  # of the line that has no end yet; empty where it is too long
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
            yield self._record(part)
        self._is_read_up = not block
        if self._is_read_up and self._length:
            yield self._record(rest)
        self._grow(rest)

    def _grow(self, part: bytes) -> None:
        self._length += len(part)
        if self._length <= self._longest:
            self._line += part
        else:
            self._line.clear()

    def _record(self, end: bytes) -> Record:
        self._grow(end)
        unreadable = None
        if self._length > self._longest:
            unreadable = f"the value has {self._length} bytes, at most {self._longest} are taken"
        value, self._line, self._length, self._lines = bytes(self._line), bytearray(), 0, self._lines + 1
        return Record(self._partition, self._lines, None, value, LINE_HEADERS, None, unreadable)


def _arrays(path: Path, signature: Signature) -> Mapping[str, Array]:
    """The arrays by the name of the input: the members of a .npz, or the only one of a .npy."""
    if zipfile.is_zipfile(path):
        with path.open("rb") as file, np.load(file, allow_pickle=False) as members:
            found = dict(members)
    else:
        found = {signature.required[0].name: npy.open_memmap(path, mode="r")}
    missing = {spec.name for spec in signature.required} - found.keys()
    if missing or found.keys() - {spec.name for spec in signature.inputs}:
        raise BadConfiguration(
            f"{path} holds {listed(found)}; the model takes {signature.takes}: save those arrays by name in a .npz"
        )
    return found


def _again(array: Array) -> Array:
    if not isinstance(array, np.memmap) or array.filename is None:
        return array
    order: Literal["F", "C"] = "F" if np.isfortran(array) else "C"
    return np.memmap(array.filename, array.dtype, "r", array.offset, array.shape, order)


def _check(path: Path, spec: TensorSpec, array: Array) -> None:
    shape, dims = array.shape, spec.dims
    where = f"{path} holds {array.dtype} of shape {list(shape)}; the model takes {spec}"
    if spec.is_text:
        raise BadConfiguration(f"{where}: text comes in lines of JSON")
    if len(shape) != len(dims) + 1 or any(wanted not in (None, d) for wanted, d in zip(dims, shape[1:], strict=True)):
        raise BadConfiguration(f"{where}, with the batch's axis first")
    if array.dtype.newbyteorder("<") != spec.dtype:
        raise BadConfiguration(f"{where}: save array.astype({spec.dtype.name!r})")
    if min(shape) < 1:
        raise BadConfiguration(f"{where}: there is nothing to score")

"""Files to score: rows of a .npy or .npz, checked against the model's inputs, and lines of JSON from a file or a pipe.

Errors in an array file are reported before the first inference, and nothing is ever unpickled. A .npy and lines are
read portion by portion, so memory does not grow with them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.lib import format as npy

from worker.codecs.encodings import json_writer
from worker.codecs.encodings.columns import column_of
from worker.codecs.wire_contract import HEAD_LENGTH, JSON, OCTETS
from worker.core.failures import BadConfiguration, Incomplete, listed
from worker.core.foreign_values import DAMAGED
from worker.core.records import Array, Headers, Partition, Record
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.tools.whole_records import parsed, whole_record

LINES_BYTES = 16 * 1024 * 1024  # bytes at which a portion of lines ends
ACCEPT_JSON: Headers = (("accept", JSON.encode()),)
LINE_HEADERS: Headers = (("content-type", JSON.encode()), *ACCEPT_JSON)


class Rows(NamedTuple):
    """Rows of an array file from row `number` on: an array for each input. `accept`: the answer's content type."""

    source: Partition
    number: int
    specs: Sequence[TensorSpec]
    arrays: Sequence[Array]
    accept: str

    @property
    def total(self) -> int:
        return len(self.arrays[0])

    def parts(self, rows: int) -> Iterator[Rows]:
        """Yields the rows in parts of at most `rows` rows."""
        for at in range(0, self.total, rows):
            arrays = [array[at : at + rows] for array in self.arrays]
            yield self._replace(number=self.number + at, arrays=arrays)

    def record(self) -> Record:
        """Returns one request with all rows. Its offset is the number of the first row."""
        columns = [column_of(spec, array, binary=True) for spec, array in zip(self.specs, self.arrays, strict=True)]
        (value,), (head,) = json_writer.binary_values(None, columns, 1)
        accept = ("accept", self.accept.encode())
        headers = (("content-type", OCTETS.encode()), (HEAD_LENGTH, b"%d" % head), accept)
        return Record(self.source, self.number, None, value, headers, None)


class RowFile:
    """A .npy, which is mapped, or a .npz. It has an array of `total` rows for each input of the model that it holds."""

    def __init__(self, path: Path, name: str, signature: Signature, accept: str) -> None:
        """Raises `BadConfiguration`, one sentence with the cure, if the file does not fit the model."""
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

    def portions(self, at_once: Callable[[], int]) -> Iterator[Rows]:
        """Yields all rows in portions. `at_once` gives the size of the next portion. Raises `Incomplete`."""
        at = 0
        while at < self.total:
            end = min(at + at_once(), self.total)
            pairs = zip(self._all.arrays, self._all.specs, strict=True)
            arrays = [np.ascontiguousarray(_rows(array, at, end), spec.dtype) for array, spec in pairs]
            yield self._all._replace(number=at, arrays=arrays)
            at = end


def _rows(array: Array, at: int, end: int) -> Array:
    """Returns rows of an array. It reads a mapped file, whose pages would count as memory, and tells if it shrank."""
    if not isinstance(array, np.memmap) or array.filename is None:
        return array[at:end]
    try:
        begin = array.offset + at * array[:1].nbytes
        read: Array = np.fromfile(array.filename, array.dtype, (end - at) * array[0].size, offset=begin)
        return read.reshape(end - at, *array.shape[1:])
    except DAMAGED as error:
        raise Incomplete(f"{array.filename}: cannot be read to its end: {error}") from error


ReadLine = Callable[[int, bytes], Record]  # the record of a line, which has this number from 1 on; it is its offset


def plain(source: Partition, headers: Headers, number: int, line: bytes) -> Record:
    """The record whose value is the line, with these headers."""
    return Record(source, number, None, line, headers, None)


def whole(source: Partition, headers: Headers, number: int, line: bytes) -> Record:
    """The whole record that the line says; these headers stand in the place of its own ones of their names.

    Raises `BadConfiguration` if it says none.
    """
    try:
        document = parsed(line, "`consume --json` and `dead-letters show --json` write such lines")
        said = whole_record(line, document)
    except BadConfiguration as odd:
        raise BadConfiguration(f"{source.topic}, line {number}: {odd}; without --whole a line is a value") from None
    replaced = {name for name, _ in headers}
    own = [(name, value) for name, value in said.headers if name.lower() not in replaced]
    source = source if said.topic is None else Partition(said.topic, 0)
    return Record(source, number, said.key, said.value, (*own, *headers), said.timestamp_ms)


def line_portions(
    lines: Iterator[bytes | None], read: ReadLine, longest: int, at_once: Callable[[], int]
) -> Iterator[list[Record]]:
    """Yields the records of lines in portions. Each line, even an empty one, is one.

    When a pipe is silent, the portion has what has come, or nothing. `longest`: the most bytes of a value.
    """
    records, size, number, wanted = list[Record](), 0, 0, at_once()
    for line in lines:
        if line is not None:
            number += 1
            size += len(line)
            records.append(_bounded(read(number, line), longest))
        if line is None or len(records) >= wanted or size >= LINES_BYTES:
            yield records
            records, size, wanted = [], 0, at_once()
    yield records


def _bounded(record: Record, longest: int) -> Record:
    size = len(record.value or b"")
    if size <= longest:
        return record
    return record._replace(value=b"", unreadable=f"the value has {size} bytes, at most {longest} are taken")


def _arrays(path: Path, signature: Signature) -> Mapping[str, Array]:
    """Returns the arrays by the input's name: the members of a .npz, or the only array of a .npy."""
    if zipfile.is_zipfile(path):
        with path.open("rb") as file, np.load(file, allow_pickle=False) as members:
            found = dict(members)
    else:
        mapped = npy.open_memmap(path, mode="r")  # an array in column order is copied: its rows are scattered
        found = {signature.required[0].name: np.array(mapped) if np.isfortran(mapped) else mapped}
    missing = {spec.name for spec in signature.required} - found.keys()
    if missing or found.keys() - {spec.name for spec in signature.inputs}:
        raise BadConfiguration(
            f"{path} holds {listed(found)}; the model takes {signature.takes}: save those arrays by name in a .npz"
        )
    return found


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

"""What there is to publish, one record after another: lines of a file or a pipe, rows of an array, made-up requests.

Each is an iterator that never holds more than about a MiB of its source; None stands for "nothing yet", so that the
publisher can look after what is under way while a pipe is silent.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from worker.codecs.examples import Encoding, encode_request, example_feeds, rows_headers
from worker.core.damaged_files import DAMAGED
from worker.core.failures import BadConfiguration
from worker.core.records import Array
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import DTYPES
from worker.tools.publish.lines import Publishable, read_line

BLOCK = 1024 * 1024
LONGEST_LINE = 100 * BLOCK  # more no broker takes as one record
# How long a pipe may be silent before the publisher looks after its other work, seconds.
_GLANCE = 0.05
_NUMPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"


class Requests(Protocol):
    """What is to be published; `total` is how many there are, None where that is known only at the end."""

    @property
    def total(self) -> int | None: ...
    def __iter__(self) -> Iterator[Publishable | None]: ...


class LineRequests:
    """JSON lines. Empty ones are passed over. Raises `BadConfiguration`, with the line's number, for an odd one."""

    total = None

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def __iter__(self) -> Iterator[Publishable | None]:
        number = 0
        for line in self._lines():
            number += line is not None
            if line is None:
                yield None
            elif line.strip():
                yield self._read(number, line)

    def _read(self, number: int, line: bytes) -> Publishable:
        try:
            return read_line(line.strip())
        except BadConfiguration as odd:
            raise BadConfiguration(f"{self._name}, line {number}: {odd}") from None

    def _lines(self) -> Iterator[bytes | None]:
        descriptor, rest = self._file.fileno(), b""
        while True:
            # A file is always ready; a pipe is when something has come, or its other end is closed.
            if not select.select([descriptor], [], [], _GLANCE)[0]:
                yield None
                continue
            block = os.read(descriptor, BLOCK)
            if not block:
                break
            *whole, rest = (rest + block).split(b"\n")
            yield from whole
            if len(rest) > LONGEST_LINE:
                raise BadConfiguration(f"{self._name}: a line has more than {LONGEST_LINE} bytes")
        yield rest


class RowRequests:
    """Rows of a .npy file, mapped into memory, `rows` to a request: little-endian bytes, as the wire has them."""

    def __init__(self, path: Path, rows: int) -> None:
        """Raises `BadConfiguration` for what holds no rows of numbers."""
        self._array = _mapped(path)
        self._path = path
        self._rows = rows
        self.total = -(-len(self._array) // rows)

    def check(self, signature: Signature) -> None:
        """Raises `BadConfiguration` for rows that a worker with this model would refuse, or take for other numbers.

        Rows of bytes say neither shape nor datatype: any layout of as many elements is taken, no other datatype.
        """
        array, spec = self._array, signature.raw_input
        if spec is None:
            raise BadConfiguration(
                f"{self._path} holds rows of one array, for models with one numeric input of fixed dimensions; this "
                f"one takes {signature.takes}: publish JSON lines"
            )
        where = f"{self._path} holds {array.dtype} of shape {list(array.shape)}; the model takes {spec}"
        if array[:1].size * spec.dtype.itemsize != spec.row_bytes:
            raise BadConfiguration(where)
        if array.dtype.newbyteorder("<") != spec.dtype:
            raise BadConfiguration(f"{where}: save array.astype({spec.dtype.name!r})")

    def __iter__(self) -> Iterator[Publishable | None]:
        row_bytes = self._array[:1].nbytes
        datatype = _datatype(self._array)
        request_bytes = self._rows * row_bytes
        requests = max(1, BLOCK // request_bytes)  # of a block
        for start in range(0, len(self._array), requests * self._rows):
            block = _little_endian(self._array[start : start + requests * self._rows])
            for at in range(0, len(block), request_bytes):
                value = block[at : at + request_bytes]
                yield Publishable(value, headers=rows_headers(datatype, len(value) // row_bytes))


@dataclass(frozen=True, slots=True)
class MadeUpRequests:
    """So many requests of `rows` rows each for a model, made up or of rows `given`; the same seed makes the same."""

    signature: Signature
    total: int
    encoding: Encoding
    rows: int
    seed: int
    given: Mapping[str, Array] | None = None

    def __iter__(self) -> Iterator[Publishable | None]:
        rng = np.random.default_rng(self.seed)
        for _ in range(self.total):
            feeds = example_feeds(self.signature, self.rows, rng, self.given)
            headers, value = encode_request(self.signature, feeds, self.encoding)
            yield Publishable(value, headers=headers)


def is_array(path: Path) -> bool:
    """Whether the file is a .npy, by its first bytes. A pipe, which can be read only once, is none."""
    return _begins(path, _NUMPY)


def is_archive(path: Path) -> bool:
    """Whether the file is a zip, as a .npz is, by its first bytes too."""
    return _begins(path, _ZIP)


def _begins(path: Path, mark: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


def _mapped(path: Path) -> Array:
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except DAMAGED as error:
        raise BadConfiguration(f"{path}: cannot be read as an array: {error}") from error
    if not array.ndim or not array.size:
        raise BadConfiguration(f"{path}: holds no rows: its shape is {list(array.shape)}")
    if array.dtype.kind not in "biuf":
        raise BadConfiguration(
            f"{path}: holds {array.dtype}, and only numbers and truth values have rows of bytes: publish JSON lines"
        )
    return array


def _datatype(array: Array) -> str | None:
    """None for what no request can hold, a long double."""
    return next((name for name, dtype in DTYPES.items() if dtype == array.dtype.newbyteorder("<")), None)


def _little_endian(rows: Array) -> bytes:
    return np.ascontiguousarray(rows, rows.dtype.newbyteorder("<")).tobytes()

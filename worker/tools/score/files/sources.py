"""What is scored, as the records that the loop polls: lines of JSON, or rows of an array file.

A line is the value of one request, and its number, from 1, the offset. Regular files and pipes are read alike, block by
block; a pipe is waited for no longer than the loop allows. No line is held that is longer than a request may be.

Rows come as many to a record as the caller says: then a row costs its share of a record, and no Python object of its
own. They are the value as they are where the model's only input allows it, and else a request in the protocol's
binary-data form.
"""

from __future__ import annotations

import json
import os
import select
import stat
from collections import deque
from collections.abc import Iterable, Sequence

from worker.codecs.wire_contract import HEAD_LENGTH, JSON, OCTETS
from worker.core.failures import Code, Incomplete
from worker.core.records import Partition, Record, Rejection, Reply, Request
from worker.ports import Assignments, Codec
from worker.tools.score.files.arrays import Arrays

LINES_BLOCK = 256 * 1024  # bytes of one read: a few batches of small requests
# Answers are lines too, so only those may be asked for that are JSON to their end.
HEADERS = (("content-type", JSON.encode()), ("accept", JSON.encode()))
# The head of a record of rows is padded to a multiple of this: the codec would copy a tensor that kernels cannot load
# from.
ALIGNMENT = 64
# Bytes of one poll, and a record more: the lanes should not wait while a heap of batches is read.
ROWS_BLOCK = 64 * 1024


class FileSource:
    """The part of a `Source` that all files share. Owns whether it is paused.

    `is_live`: more may come while we wait. `most_rows`, `most_bytes`: of one record, where it may exceed a batch.
    """

    def __init__(self, *, is_live: bool = False, most_rows: int = 1, most_bytes: int = 1) -> None:
        self.is_live = is_live
        self.most_rows = most_rows
        self.most_bytes = most_bytes
        self._is_paused = False

    @property
    def is_over(self) -> bool:
        raise NotImplementedError

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        """The next records; raises `Incomplete` when the file cannot be read any more."""
        raise NotImplementedError

    def subscribe(self, assignments: Assignments) -> None:
        """A file has one reader, so no partitions come and go."""

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False

    def close(self) -> None:
        """The file is its opener's."""

    def leave(self) -> None: ...


class LineSource(FileSource):
    """A `Source`. Owns its place in the file, not the file. Every line is a record, an empty one too."""

    def __init__(self, descriptor: int, name: str, longest: int, limit: int | None = None) -> None:
        """`longest`: bytes of a line that may still be a request; `limit`: how many lines are read at most."""
        super().__init__(is_live=not stat.S_ISREG(os.fstat(descriptor).st_mode))
        self._descriptor = descriptor
        self._partition = Partition(name, 0)
        self._longest = longest
        self._limit = limit
        self._ready: deque[Record] = deque()
        self._parts: list[bytes] = []  # the line that has no end yet, unless it is too long already
        self._length = 0
        self._lines = 0
        self._is_read_up = limit == 0

    @property
    def is_over(self) -> bool:
        return self._is_read_up and not self._ready

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        if self._is_paused:
            return ()
        while not self._ready and not self._is_read_up and self._has_more(timeout):
            self._read()
            timeout = 0.0
        return [self._ready.popleft() for _ in range(min(max_records, len(self._ready)))]

    def _has_more(self, timeout: float) -> bool:
        return not self.is_live or bool(select.select([self._descriptor], [], [], timeout)[0])

    def _read(self) -> None:
        try:
            block = os.read(self._descriptor, LINES_BLOCK)
        except OSError as error:
            raise Incomplete(f"{self._partition.topic}: cannot be read: {error.strerror}") from error
        *ended, rest = block.split(b"\n")
        for part in ended:
            self._grow(part)
            self._end()
            if self._is_read_up:
                return
        self._grow(rest)
        if not block:
            self._is_read_up = True
            if self._length:  # the last line has no end of its own
                self._end()

    def _grow(self, part: bytes) -> None:
        self._length += len(part)
        if self._length <= self._longest:
            self._parts.append(part)
        else:
            self._parts.clear()

    def _end(self) -> None:
        self._lines += 1
        value, unreadable = b"".join(self._parts), None
        if self._length > self._longest:
            unreadable = f"the value has {self._length} bytes, at most {self._longest} are taken"
        self._ready.append(Record(self._partition, self._lines, None, value, HEADERS, None, unreadable))
        self._parts.clear()
        self._length = 0
        if self._lines == self._limit:
            self._is_read_up = True


class LineCodec:
    """Decodes a line as the worker's codec does, and refuses as that would one that was too long to be held."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.refuse = codec.refuse

    def decode(self, record: Record) -> Request | Rejection:
        """The line as a request, or why it is none."""
        if record.unreadable is not None:
            return Rejection(record, Code.RESOURCE_EXHAUSTED, record.unreadable, Reply(JSON))
        return self._codec.decode(record)

    def decode_all(self, records: Sequence[Record]) -> Sequence[Request | Rejection]:
        return [self.decode(record) for record in records]


class RowSource(FileSource):
    """A `Source` of these pieces of the file, in their order. A record's offset is the number of its first row."""

    def __init__(
        self, arrays: Arrays, name: str, pieces: Iterable[range], most_rows: int = 1, accept: str = OCTETS
    ) -> None:
        """`most_rows`: of one piece; `accept`: the content type of the answers."""
        super().__init__(most_rows=most_rows, most_bytes=most_rows * arrays.row_bytes)
        self._arrays = arrays
        self._partition = Partition(name, 0)
        self._pieces = iter(pieces)
        self._next = next(self._pieces, None)
        self._headers = [("content-type", OCTETS.encode()), ("accept", accept.encode())]

    @property
    def is_over(self) -> bool:
        return self._next is None

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:  # noqa: ARG002  # a file never waits
        """The next records. Raises `Incomplete` when the file cannot be read any more."""
        records: list[Record] = []
        size = 0
        while self._next is not None and len(records) < max_records and size < ROWS_BLOCK and not self._is_paused:
            records.append(self._record(self._next))
            size += len(records[-1].value or b"")
            self._next = next(self._pieces, None)
        return records

    def _record(self, piece: range) -> Record:
        tensors = [column.read(piece.start, len(piece)) for column in self._arrays.columns]
        if self._arrays.are_plain:
            return Record(self._partition, piece.start, None, tensors[0], self._headers, None)
        head = self._head(piece, tensors)
        headers = [*self._headers, (HEAD_LENGTH, b"%d" % len(head))]
        return Record(self._partition, piece.start, None, b"".join([head, *tensors]), headers, None)

    def _head(self, piece: range, tensors: Sequence[bytes]) -> bytes:
        inputs = [
            {
                "name": column.spec.name,
                "shape": [len(piece), *column.dims],
                "datatype": column.spec.datatype,
                "parameters": {"binary_data_size": len(tensor)},
            }
            for column, tensor in zip(self._arrays.columns, tensors, strict=True)
        ]
        document = json.dumps({"inputs": inputs}).encode()
        return document.ljust(-(-len(document) // ALIGNMENT) * ALIGNMENT)

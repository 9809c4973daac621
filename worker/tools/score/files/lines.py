"""A file of JSON lines as records: each line the value of one request, and its number, from 1, the offset.

Regular files and pipes are read alike, block by block; a pipe is waited for no longer than the loop allows. No line is
held that is longer than a request may be.
"""

from __future__ import annotations

import os
import select
import stat
from collections import deque
from collections.abc import Sequence

from worker.codecs.wire_contract import JSON
from worker.core.failures import Code, Incomplete
from worker.core.records import Partition, Record, Rejection, Reply, Request
from worker.ports import Codec
from worker.tools.score.files.file_source import FileSource

BLOCK = 256 * 1024  # bytes of one read: a few batches of small requests
# Answers are lines too, so only those may be asked for that are JSON to their end.
HEADERS = (("content-type", JSON.encode()), ("accept", JSON.encode()))


class Lines(FileSource):
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
        """All is read."""
        return self._is_read_up and not self._ready

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        """The next lines. Raises `Incomplete` when the file cannot be read any more."""
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
            block = os.read(self._descriptor, BLOCK)
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
        """One by one."""
        return [self.decode(record) for record in records]

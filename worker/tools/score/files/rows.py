"""The rows of an array file as records, each of so many rows as is told.

A record with many rows makes a row cost its share of it, and no Python object of its own. Rows are the value as they
are where the model's only input allows it, and else a request in the protocol's binary-data form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from worker.codecs.wire_contract import HEAD_LENGTH, OCTETS
from worker.core.records import Partition, Record
from worker.tools.score.files.arrays import Arrays
from worker.tools.score.files.file_source import FileSource

# The head of a record is padded to a multiple of this: the codec would copy a tensor that kernels cannot load from.
ALIGNMENT = 64
# Bytes of one poll, and a record more: the lanes should not wait while a heap of batches is read.
BLOCK = 64 * 1024


class Rows(FileSource):
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
        """All is read."""
        return self._next is None

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:  # noqa: ARG002  # a file never waits
        """The next records. Raises `Incomplete` when the file cannot be read any more."""
        records: list[Record] = []
        size = 0
        while self._next is not None and len(records) < max_records and size < BLOCK and not self._is_paused:
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

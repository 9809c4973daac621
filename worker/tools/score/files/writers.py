"""Where the outcomes of a file go: lines of JSON, or .npy files, one per output of the model, and errors beside them.

A line is the value that the worker would send, and for an error what only its headers would say.

A record of many rows that is refused is not the end of them. They are asked again in smaller pieces, and at last one by
one: so the bad rows are refused alone, and their neighbours have their results.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from worker.core.failures import BadConfiguration, Incomplete
from worker.core.records import Message, Outcome, Rejection
from worker.core.tensors.signature import Signature
from worker.tools.score.files.npy_file import NpyFile
from worker.tools.score.results import ScoreCounts

BLOCK = 64 * 1024  # bytes that wait for company; a pipe holds as much


# An outcome's messages: one, where there are no dead letters.
Encode = Callable[[Outcome], Sequence[Message]]


class LineWriter:
    """A `Writer`. Owns the lines that are not written yet, not the file.

    Written without Python's own buffer, which would write again, when it is closed, what a full disk did not take.
    """

    def __init__(self, descriptor: int, name: str, encode: Encode, unit: str, counts: ScoreCounts) -> None:
        """`unit` is what the numbers count: `line` or `row`."""
        self._descriptor = descriptor
        self._name = name
        self._encode = encode
        self._unit = unit.encode()
        self._counts = counts
        self._lines: list[bytes] = []
        self._size = 0

    def write(self, number: int, outcome: Outcome) -> None:
        """One line. Raises `Incomplete` when the disk is full or the output is read no more."""
        (message,) = self._encode(outcome)
        line = message.value or b""
        headers = dict(message.headers)
        if headers["status"] == b"error":
            line = self._refuse(line, headers["error-code"] or b"", number)
        self._lines.append(line)
        self._size += len(line)
        self._counts.outcomes += 1
        if self._size >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Write what waits. Raises `Incomplete` as `write` does; what waited is lost then."""
        lines, self._lines, self._size = self._lines, [], 0
        if not lines:
            return
        view = memoryview(b"\n".join([*lines, b""]))
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise Incomplete(f"{self._name}: cannot be written to: {error.strerror}") from error

    def _refuse(self, line: bytes, code: bytes, number: int) -> bytes:
        """The error object with its code and the number of the line or row that it answers."""
        self._counts.refuse(code.decode(), number)
        return b'%b,"code":"%b","%b":%d}' % (line[:-1], code, self._unit, number)


class ArrayWriter:
    """A `Writer`. Owns the files of results until `close`, and which rows still have no outcome."""

    def __init__(self, errors: LineWriter, rows: int, counts: ScoreCounts) -> None:
        self._errors = errors
        self._counts = counts
        self._files: list[NpyFile] = []
        self._end = rows
        self._open = deque([range(rows)])  # to be asked in this pass
        self._asked: deque[range] = deque()  # whose outcomes come next
        self._refused: deque[range] = deque()  # to be asked again in the next pass

    def add(self, file: NpyFile) -> None:
        """The file of the next output, in the signature's order."""
        self._files.append(file)

    @property
    def finished(self) -> int:
        """How many rows have their outcome, up to the first that has none."""
        return min([self._end, *(rows[0].start for rows in (self._open, self._refused) if rows)])

    def pieces(self, size: Callable[[range], int]) -> Iterator[range]:
        """The rows of this pass in pieces, in order; `size` says how large the next piece of such a stretch may be."""
        for stretch in list(self._open):
            at = stretch.start
            while at < stretch.stop:
                piece = range(at, min(at + size(stretch), stretch.stop))
                self._asked.append(piece)
                yield piece
                at = piece.stop

    def next_pass(self) -> bool:
        """Turn to what was refused; False when nothing was. What was not asked until now will not be asked at all."""
        if self._open:
            self._end = self._open[0].start
        self._asked.clear()
        self._open, self._refused = self._refused, deque()
        return bool(self._open)

    def write(self, number: int, outcome: Outcome) -> None:
        """The outcome of the next piece. Raises `Incomplete` when it cannot be written."""
        rows = self._asked.popleft()
        assert rows.start == number, f"the outcome of row {number} came, and that of row {rows.start} is next"
        if not isinstance(outcome, Rejection):
            for file, array in zip(self._files, outcome.outputs, strict=True):
                file.write(number, array)
            self._counts.outcomes += len(rows)
        elif len(rows) == 1:
            for file in self._files:
                file.refuse(number)
            self._errors.write(number, outcome)
        else:
            self._refused.append(rows)
        if rest := range(rows.stop, self._open.popleft().stop):
            self._open.appendleft(rest)

    def flush(self) -> None:
        """Errors are few; results are written already."""
        self._errors.flush()

    def close(self, tell: Callable[[str], object]) -> None:
        """Keep all rows, or the first ones if the rest has no outcome; `tell` hears of those."""
        for file in self._files:
            if file.close(self.finished) == file.partial:
                tell(f"{file.partial} has the results of the first {self.finished:,} rows")


def paths_for(output: Path, signature: Signature) -> Sequence[Path]:
    """`out.npy` for the only output, `out.NAME.npy` for each of several. Raises `BadConfiguration`."""
    if len(signature.outputs) == 1:
        return [output]
    names = [re.sub(r"[^\w.-]+", "_", spec.name) for spec in signature.outputs]
    if len(set(names)) < len(names):
        raise BadConfiguration(f"the outputs {', '.join(names)} would share a file: write JSON lines instead")
    return [output.with_name(f"{output.stem}.{name}{output.suffix}") for name in names]

"""Writes outcomes: JSON lines, a .csv, or a .npy for each output of the model, with the errors in a file beside them.

A file is called `x.partial.npy` until all is written, and then gets its own name. So a file with its own name is whole.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.lib import format as npy

from worker.core.chunk import Prediction
from worker.core.failures import BadConfiguration, Incomplete
from worker.core.records import Answer, Array, Fields, Rejection
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.terminal.terminal import aside, count, say
from worker.tools.closing import Closing
from worker.tools.options import ScoreOrder
from worker.tools.score.portions import Scored

STDOUT = 1
Messages = Callable[[Sequence[Answer]], Sequence[Fields]]


class Target:
    """A file under its unfinished name, or standard output. Owns the descriptor.

    It does not use Python's buffer: when that is closed, it would write again the bytes that a full disk did not take.
    """

    def __init__(self, path: Path | None) -> None:
        """`path` None: standard output. Raises `BadConfiguration` for a file that cannot be made."""
        self._path = path
        self._partial = path and partial(path)
        self._descriptor = STDOUT
        if self._partial is not None:
            try:
                self._descriptor = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            except OSError as error:
                raise BadConfiguration(f"{path}: cannot be written: {error.strerror}") from error

    def write(self, content: bytes) -> None:
        """Write all bytes. Raises `Incomplete` if the disk is full, or the output's reader has closed it."""
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise Incomplete(f"{self._partial or 'standard output'}: cannot be written: {error.strerror}") from error

    def end(self, part: str | None = None) -> None:
        """Give the file its name. With `part`, leave it unfinished, and say which part it has."""
        if self._path is not None and self._partial is not None:
            os.close(self._descriptor)
            path = self._partial if part else self._partial.replace(self._path)
            say(aside(), f"written: {path}{part or ''}")

    def drop(self) -> None:
        os.close(self._descriptor)
        assert self._partial is not None
        self._partial.unlink()


class CsvFile(Target):
    """A CSV of answers to records: a column for each of their fields, and then the error of those without.

    Such a record's place in the file is in the last column, because it may have no other name.
    """

    def __init__(self, path: Path, fields: Sequence[str], unit: str) -> None:
        """`unit`: the thing that is counted. Raises `BadConfiguration` if the file cannot be made."""
        super().__init__(path)
        self._fields = (*fields, "error", "code", unit)
        self._add([self._fields])

    def write(self, content: bytes) -> None:
        """Write answers that come as lines of JSON. Raises `Incomplete` if they cannot be written."""
        answers = [msgspec.json.decode(line) for line in content.splitlines()]
        self._add([[_cell(answer.get(name)) for name in self._fields] for answer in answers])

    def _add(self, rows: Sequence[Sequence[str]]) -> None:
        text = io.StringIO()
        csv.writer(text).writerows(rows)
        super().write(text.getvalue().encode())


def _cell(value: Any) -> str:
    """The value as CSV has it; null is empty, and a list is JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class NpyFile(Target):
    """The file of one output's rows, in order.

    The header, always 128 bytes long, is written last. So a command that was stopped leaves a whole array of fewer
    rows, and a command that was killed leaves a file that numpy refuses.
    """

    def __init__(self, path: Path, spec: TensorSpec) -> None:
        """Raises `BadConfiguration` if the file cannot be made."""
        super().__init__(path)
        dims = tuple(d for d in spec.dims if d is not None)
        # The row in place of a missing result: NaN if the type has it, else zeros.
        self.blank = np.full((1, *dims), np.nan if spec.is_float else 0, spec.dtype)
        self._rows = 0
        self.write(bytes(len(self._header())))

    def add(self, rows: Array) -> None:
        """Append rows. Raises `Incomplete` if they cannot be written."""
        self.write(rows.tobytes())
        self._rows += len(rows)

    def end(self, part: str | None = None) -> None:
        header = self._header()  # `ftruncate` drops the last row if a full disk took only a part of it
        os.ftruncate(self._descriptor, len(header) + self._rows * self.blank.nbytes)
        os.pwrite(self._descriptor, header, 0)
        super().end(part)

    def _header(self) -> bytes:
        header, shape = io.BytesIO(), (self._rows, *self.blank.shape[1:])
        descr = npy.dtype_to_descr(self.blank.dtype)
        npy.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
        return header.getvalue()


class Results(Closing):
    """Writes and counts outcomes: a line for each, or, with `files`, rows into those and a line for each refusal.

    At the end the files get their names if `is_complete`.
    """

    def __init__(self, target: Target, messages: Messages, unit: str, files: Sequence[NpyFile] = ()) -> None:
        """`unit`: the thing that is counted, `line` or `row`."""
        self.is_complete = False
        self.outcomes = 0
        self.passed_over = 0  # records of a kind that gets no answer
        self.refused: dict[str, tuple[int, int]] = {}  # by code: how many, and the number of the first
        self.unit = unit
        self._target = target
        self._messages = messages
        self._files = files

    def write(self, scored: Sequence[Scored]) -> None:
        """Write a portion of outcomes, in the order of the file. Raises `Incomplete` if they cannot be written."""
        if not self._files:
            self._target.write(b"".join(map(self._line, scored)))
            self.outcomes += len(scored)
            return
        for one in scored:
            if isinstance(one, Prediction):
                rows, outputs = one.chunk.rows[0], one.outputs
            else:
                self._target.write(self._line(one))
                rows, outputs = 1, [file.blank for file in self._files]
            for file, array in zip(self._files, outputs, strict=True):
                file.add(array)
            self.outcomes += rows

    def close(self) -> None:
        part = None if self.is_complete else f" has the first {count(self.outcomes, 'result')}"
        for file in self._files:
            file.end(part)
        if self._files and not self.refused:
            self._target.drop()
        else:
            self._target.end(part)

    def _line(self, answer: Scored) -> bytes:
        """Returns the value that a worker would send; for an error also its code, which a worker sends as a header.

        A record that a worker passes over has no line.
        """
        assert not isinstance(answer, Prediction)  # its rows go into files
        if not isinstance(answer, Rejection):
            return (answer[2] or b"") + b"\n"
        if answer.is_silent:
            self.passed_over += 1
            return b""
        ((_, _, value, *_),) = self._messages([answer])
        number, code = answer.record.offset, answer.code.value
        many, first = self.refused.get(code, (0, number))
        self.refused[code] = many + 1, first
        return b'%b,"code":"%b","%b":%d}\n' % ((value or b"")[:-1], code.encode(), self.unit.encode(), number)


def partial(path: Path) -> Path:
    """Returns the name for a file while it is not finished."""
    return path.with_name(f"{path.stem}.partial{path.suffix}")


def results_for(order: ScoreOrder, signature: Signature, messages: Messages, columns: Sequence[str] | None) -> Results:
    """Makes the files that this order wants. Raises `BadConfiguration`, before the first inference.

    `columns`: the fields of an answer to a record; None: they are not known, or the answers are to requests.
    """
    output = order.output
    if output is not None and output.suffix == ".csv":
        if columns is None:
            raise BadConfiguration(
                f"{output}: a CSV has columns for the fields of [records.answer], and `keep` with names; for all "
                "others, such as those of functions, give another name for JSON lines"
            )
        _check_free(order, [output])
        return Results(CsvFile(output, columns, order.unit), messages, order.unit)
    if output is None or not order.wants_arrays:
        _check_free(order, [output] if output else [])
        return Results(Target(output), messages, order.unit)
    for spec in signature.outputs:
        if spec.is_text or None in spec.dims:
            raise BadConfiguration(f"output {spec}: .npy holds numbers of one shape: give another name for JSON lines")
    names = [re.sub(r"[^\w.-]+", "_", spec.name) for spec in signature.outputs]
    if len(set(names)) < len(names):
        names = [str(at) for at in range(len(names))]
    paths = [output.with_name(f"{output.stem}.{name}.npy") for name in names] if len(names) > 1 else [output]
    errors = output.with_suffix(".errors.jsonl")
    _check_free(order, [*paths, errors])
    errors.unlink(missing_ok=True)  # an earlier command may have left it
    return Results(Target(errors), messages, order.unit, list(map(NpyFile, paths, signature.outputs)))


def _check_free(order: ScoreOrder, paths: Sequence[Path]) -> None:
    """Raises `BadConfiguration` if a file exists that the order does not let us overwrite, or is the input itself."""
    for path in (*paths, *map(partial, paths)):
        if not path.exists():
            continue
        if os.path.samestat(path.stat(), os.fstat(0) if order.is_piped else order.file.stat()):
            raise BadConfiguration(f"{path} is the input itself: give another name")
        if not path.is_file():
            raise BadConfiguration(f"{path} is no file: leave --output out, and direct standard output there")
        if not order.force:
            raise BadConfiguration(f"{path} is there already: --force writes over it")

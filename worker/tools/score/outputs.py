"""Where outcomes go: lines of JSON, or a .npy for each output of the model and the errors in a file next to them.

A file is called `x.partial.npy` until all is written, and gets its own name then: what has that name is whole.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from worker.core.failures import BadConfiguration, Incomplete
from worker.core.records import Array, Message, Outcome, Rejection
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.terminal.terminal import aside, count, say
from worker.tools.closing import Closing
from worker.tools.options import ScoreOrder
from worker.tools.score.scorer import Scored

STDOUT = 1
Encode = Callable[[Outcome], Sequence[Message]]


class Target:
    """A file under its unfinished name, or standard output. Owns the descriptor.

    Written without Python's own buffer, which would write again, when it is closed, what a full disk did not take.
    """

    def __init__(self, path: Path | None) -> None:
        """None: standard output. Raises `BadConfiguration` for a file that cannot be made."""
        self._path = path
        self._partial = path and partial(path)
        self._descriptor = STDOUT
        if self._partial is not None:
            try:
                self._descriptor = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            except OSError as error:
                raise BadConfiguration(f"{path}: cannot be written: {error.strerror}") from error

    def write(self, content: bytes) -> None:
        """All of it. Raises `Incomplete` when the disk is full or the output is read no more."""
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise Incomplete(f"{self._partial or 'standard output'}: cannot be written: {error.strerror}") from error

    def end(self, part: str | None = None) -> None:
        """Give it its name; or leave it, and say which part it is."""
        if self._path is not None and self._partial is not None:
            os.close(self._descriptor)
            path = self._partial if part else self._partial.replace(self._path)
            say(aside(), f"written: {path}{part or ''}")

    def drop(self) -> None:
        os.close(self._descriptor)
        assert self._partial is not None
        self._partial.unlink()


class NpyFile(Target):
    """The rows of one output, in their order.

    The header, always 128 bytes long, is written last. So a run that was stopped leaves a whole array of fewer rows,
    and one that was killed a file that numpy refuses.
    """

    def __init__(self, path: Path, spec: TensorSpec) -> None:
        """Raises `BadConfiguration` when there can be no such file."""
        super().__init__(path)
        dims = tuple(d for d in spec.dims if d is not None)
        # The row where there is no result: NaN where there is one, else zeros.
        self.blank = np.full((1, *dims), np.nan if spec.is_float else 0, spec.dtype)
        self._rows = 0
        self.write(bytes(len(self._header())))

    def add(self, rows: Array) -> None:
        """Raises `Incomplete` when they cannot be written."""
        self.write(rows.tobytes())
        self._rows += len(rows)

    def end(self, part: str | None = None) -> None:
        header = self._header()  # and drop the part of a row that a full disk took
        os.ftruncate(self._descriptor, len(header) + self._rows * self.blank.nbytes)
        os.pwrite(self._descriptor, header, 0)
        super().end(part)

    def _header(self) -> bytes:
        header, shape = io.BytesIO(), (self._rows, *self.blank.shape[1:])
        descr = npy.dtype_to_descr(self.blank.dtype)
        npy.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
        return header.getvalue()


class Results(Closing):
    """Where outcomes go, counted: a line for each; or, where there are files, their rows, and a line for each refusal.

    Files get their names at the end if `is_complete` then.
    """

    def __init__(self, target: Target, encode: Encode, unit: str, files: Sequence[NpyFile] = ()) -> None:
        """`unit` is what the numbers count: `line` or `row`."""
        self.is_complete = False
        self.outcomes = 0
        self.refused: dict[str, tuple[int, int]] = {}  # by code: how many, and the first
        self.unit = unit
        self._target = target
        self._encode = encode
        self._files = files

    def write(self, scored: Sequence[Scored]) -> None:
        """A chunk of outcomes, in the order of the file. Raises `Incomplete` when they cannot be written."""
        if not self._files:
            self._target.write(b"".join([self._line(number, outcome) for number, outcome, _ in scored]))
            self.outcomes += len(scored)
            return
        for number, outcome, rows in scored:
            if isinstance(outcome, Rejection):
                self._target.write(self._line(number, outcome))
                outputs: Sequence[Array] = [file.blank for file in self._files]
            else:
                outputs = outcome.outputs
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

    def _line(self, number: int, outcome: Outcome) -> bytes:
        """The value that a worker would send, and for an error what only its headers would say."""
        (message,) = self._encode(outcome)
        line, headers = message.value or b"", dict(message.headers)
        if headers["status"] != b"error":
            return line + b"\n"
        code = headers["error-code"] or b""
        many, first = self.refused.get(code.decode(), (0, number))
        self.refused[code.decode()] = many + 1, first
        return b'%b,"code":"%b","%b":%d}\n' % (line[:-1], code, self.unit.encode(), number)


def partial(path: Path) -> Path:
    """The name of a file that is not finished."""
    return path.with_name(f"{path.stem}.partial{path.suffix}")


def results_for(order: ScoreOrder, signature: Signature, encode: Encode) -> Results:
    """Where this order wants its outcomes, the files made. Raises `BadConfiguration`, before the first inference."""
    output = order.output
    if output is None or not order.wants_arrays:
        _check_free(order, [output] if output else [])
        return Results(Target(output), encode, order.unit)
    for spec in signature.outputs:
        if spec.is_text or None in spec.dims:
            raise BadConfiguration(f"output {spec}: .npy holds numbers of one shape: give another name for JSON lines")
    names = [re.sub(r"[^\w.-]+", "_", spec.name) for spec in signature.outputs]
    if len(set(names)) < len(names):
        names = [str(at) for at in range(len(names))]
    paths = [output.with_name(f"{output.stem}.{name}.npy") for name in names] if len(names) > 1 else [output]
    errors = output.with_suffix(".errors.jsonl")
    _check_free(order, [*paths, errors])
    errors.unlink(missing_ok=True)  # it may be of an earlier run
    return Results(Target(errors), encode, order.unit, list(map(NpyFile, paths, signature.outputs)))


def _check_free(order: ScoreOrder, paths: Sequence[Path]) -> None:
    """A file is written over only if its loss was asked for, and never the input. Raises `BadConfiguration`."""
    for path in (*paths, *map(partial, paths)):
        if not path.exists():
            continue
        if os.path.samestat(path.stat(), os.fstat(0) if order.is_piped else order.file.stat()):
            raise BadConfiguration(f"{path} is the input itself: give another name")
        if not path.is_file():
            raise BadConfiguration(f"{path} is no file: leave --output out, and direct standard output there")
        if not order.force:
            raise BadConfiguration(f"{path} is there already: --force writes over it")

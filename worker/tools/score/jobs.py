"""Which file is read and written how: three jobs, each opened whole before the first inference.

| input            | output     | a record is          | asked again, row by row, when refused |
|---|---|---|---|
| .npy, .npz       | .npy       | the rows of a batch  | yes |
| .npy, .npz       | JSON lines | a row                | no: it is alone |
| JSON lines, pipe | JSON lines | a line               | no: its rows are one request |

No file is written over that one did not ask for, and none is a mixture of two runs: the second to claim it is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from worker.codecs.wire_contract import JSON
from worker.core.failures import BadConfiguration
from worker.settings import BatchingSettings
from worker.settings.for_commands import ScoringSettings
from worker.tools.score.files.array_writer import ArrayWriter, paths_for
from worker.tools.score.files.arrays import Arrays
from worker.tools.score.files.claims import check_unclaimed, claimed, is_still
from worker.tools.score.files.line_writer import LineWriter
from worker.tools.score.files.lines import Lines
from worker.tools.score.files.npy_file import NpyFile, partial
from worker.tools.score.files.rows import Rows
from worker.tools.score.passes import Passes
from worker.tools.score.scorer import Scorer

STDIN = Path("-")
STDOUT = 1
_HEAD = 4096  # bytes of a file that show whether it is text


@dataclass(frozen=True, slots=True)
class Asked:
    """What is read, and what is written: standard output without a name. `limit`: the first so many rows or lines."""

    file: Path
    output: Path | None = None
    limit: int | None = None
    may_overwrite: bool = False

    @property
    def name(self) -> str:
        """What is read, as records and messages can carry it: a file's name may be no UTF-8."""
        return "standard input" if self.file == STDIN else os.fsencode(self.file).decode(errors="replace")

    @property
    def is_array(self) -> bool:
        return self.file.suffix in {".npy", ".npz"}

    @property
    def wants_arrays(self) -> bool:
        return self.output is not None and self.output.suffix == ".npy"

    def check(self) -> None:
        """Raises `BadConfiguration` for what no model could do."""
        if self.may_overwrite and self.output is None:
            raise BadConfiguration("--force does nothing without --output: standard output is not a file of its own")
        if self.file != STDIN and not self.file.exists():
            raise BadConfiguration(f"{self.file}: there is no such file")
        if not self.is_array and self.file.is_file() and _is_binary(self.file):
            raise BadConfiguration(f"{self.file}: is no text; rows come as .npy or .npz, requests as lines of JSON")
        if self.wants_arrays and not self.is_array:
            raise BadConfiguration(
                f"{self.output}: only rows of a .npy or .npz are answered as .npy; a request may have any number of "
                "rows, and a refused one none: give another name for JSON lines"
            )


def _is_binary(file: Path) -> bool:
    """JSON has no NUL, and nearly every other format has one near its beginning."""
    with file.open("rb") as opened:
        return b"\0" in opened.read(_HEAD)


Tell = Callable[[str], object]


class Job(NamedTuple):
    """Ready to run. `unit` is what is counted, `total` how many there are, None where that is not known.

    `run` is whether everything was done; `outputs` are the files it makes.
    """

    unit: str
    total: int | None
    run: Callable[[], bool]
    outputs: list[Path]


def open_job(asked: Asked, scorer: Scorer, settings: ScoringSettings, tell: Tell, closing: ExitStack) -> Job:
    """The job, its files open until `closing` is. `tell` hears what a job that was stopped leaves behind.

    Raises `BadConfiguration`.
    """
    if not asked.is_array:
        return _lines_to_lines(asked, scorer, settings, closing)
    arrays = closing.enter_context(Arrays(asked.file, scorer.signature))
    rows = min(arrays.rows, asked.limit or arrays.rows)
    if not asked.wants_arrays:
        return _rows_to_lines(asked, scorer, arrays, rows, closing)
    return _rows_to_arrays(asked, scorer, arrays, rows, settings.batching, tell, closing)


def _lines_to_lines(asked: Asked, scorer: Scorer, settings: ScoringSettings, closing: ExitStack) -> Job:
    source = Lines(
        0 if asked.file == STDIN else _opened(asked.file, closing),
        asked.name,
        settings.kafka.max_request_bytes,
        asked.limit,
    )
    writer = _line_writer(asked, scorer, "line", closing)
    return Job("line", asked.limit, lambda: scorer.run(source, writer), [asked.output] if asked.output else [])


def _rows_to_lines(asked: Asked, scorer: Scorer, arrays: Arrays, rows: int, closing: ExitStack) -> Job:
    if halves := [spec.name for spec in scorer.signature.outputs if spec.datatype == "FP16"]:
        raise BadConfiguration(f"output {halves[0]} is FP16, which has no form in JSON: give --output FILE.npy")
    source = Rows(arrays, asked.name, (range(row, row + 1) for row in range(rows)), accept=JSON)
    writer = _line_writer(asked, scorer, "row", closing)
    return Job("row", rows, lambda: scorer.run(source, writer), [asked.output] if asked.output else [])


def _rows_to_arrays(
    asked: Asked, scorer: Scorer, arrays: Arrays, rows: int, batching: BatchingSettings, tell: Tell, closing: ExitStack
) -> Job:
    assert asked.output is not None
    outputs = paths_for(asked.output, scorer.signature)
    errors = asked.output.with_suffix(".errors.jsonl")
    for path in (*outputs, *map(partial, outputs), errors):
        _spare(path, asked)
    descriptor = _claimed(errors, closing)
    closing.callback(_drop_if_empty, errors, descriptor)  # before it is let go
    error_writer = LineWriter(descriptor, str(errors), scorer.codecs, "row", scorer.tally)
    writer = ArrayWriter(error_writer, rows, scorer.tally)
    closing.callback(writer.close, tell)
    for path, spec in zip(outputs, scorer.signature.outputs, strict=True):
        writer.add(NpyFile(path, spec, rows))
    for path in outputs:  # what stands there in the end is of this run
        if path.is_file():
            path.unlink()
    passes = Passes(scorer, arrays, asked.name, writer, batching)
    return Job("row", rows, passes.run, [*outputs, errors])


def _line_writer(asked: Asked, scorer: Scorer, unit: str, closing: ExitStack) -> LineWriter:
    if asked.output is None:
        return LineWriter(STDOUT, "standard output", scorer.codecs, unit, scorer.tally)
    _spare(asked.output, asked)
    return LineWriter(_claimed(asked.output, closing), str(asked.output), scorer.codecs, unit, scorer.tally)


def _spare(path: Path, asked: Asked) -> None:
    """A device or a pipe may be there before; a file only if its loss was asked for, and never the input."""
    if not path.is_file():
        return
    if os.path.samestat(path.stat(), os.fstat(0) if asked.file == STDIN else asked.file.stat()):
        raise BadConfiguration(f"{path} is the input itself: give another name")
    check_unclaimed(path)
    if not asked.may_overwrite:
        raise BadConfiguration(f"{path} is there already: --force writes over it")


def _drop_if_empty(path: Path, descriptor: int) -> None:
    if path.is_file() and is_still(path, descriptor) and not path.stat().st_size:
        path.unlink()


def _claimed(path: Path, closing: ExitStack) -> int:
    descriptor = claimed(path)
    closing.callback(os.close, descriptor)
    return descriptor


def _opened(path: Path, closing: ExitStack) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise BadConfiguration(f"{path}: cannot be opened: {error.strerror}") from error
    closing.callback(os.close, descriptor)
    return descriptor

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
from pathlib import Path
from typing import NamedTuple

from worker.codecs.wire_contract import JSON
from worker.core.failures import BadConfiguration
from worker.settings import BatchingSettings
from worker.settings.for_commands import ScoringSettings
from worker.tools.score.files.arrays import Arrays
from worker.tools.score.files.claims import check_unclaimed, claimed, is_still
from worker.tools.score.files.npy_file import NpyFile, partial
from worker.tools.score.files.sources import LineSource, RowSource
from worker.tools.score.files.writers import ArrayWriter, LineWriter, paths_for
from worker.tools.score.options import STDIN, ScoreOrder
from worker.tools.score.passes import Passes
from worker.tools.score.scorer import Scorer

STDOUT = 1


Tell = Callable[[str], object]


class Job(NamedTuple):
    """Ready to run. `unit` is what is counted, `total` how many there are, None where that is not known.

    `run` is whether everything was done; `outputs` are the files it makes.
    """

    unit: str
    total: int | None
    run: Callable[[], bool]
    outputs: list[Path]


def open_job(order: ScoreOrder, scorer: Scorer, settings: ScoringSettings, tell: Tell, closing: ExitStack) -> Job:
    """The job, its files open until `closing` is. `tell` hears what a job that was stopped leaves behind.

    Raises `BadConfiguration`.
    """
    if not order.is_array:
        return _lines_to_lines(order, scorer, settings, closing)
    arrays = closing.enter_context(Arrays(order.file, scorer.signature))
    rows = min(arrays.rows, order.limit or arrays.rows)
    if not order.wants_arrays:
        return _rows_to_lines(order, scorer, arrays, rows, closing)
    return _rows_to_arrays(order, scorer, arrays, rows, settings.batching, tell, closing)


def _lines_to_lines(order: ScoreOrder, scorer: Scorer, settings: ScoringSettings, closing: ExitStack) -> Job:
    source = LineSource(
        0 if order.file == STDIN else _opened(order.file, closing),
        order.name,
        settings.kafka.max_request_bytes,
        order.limit,
    )
    writer = _line_writer(order, scorer, "line", closing)
    return Job("line", order.limit, lambda: scorer.run(source, writer), [order.output] if order.output else [])


def _rows_to_lines(order: ScoreOrder, scorer: Scorer, arrays: Arrays, rows: int, closing: ExitStack) -> Job:
    if halves := [spec.name for spec in scorer.signature.outputs if spec.datatype == "FP16"]:
        raise BadConfiguration(f"output {halves[0]} is FP16, which has no form in JSON: give --output FILE.npy")
    source = RowSource(arrays, order.name, (range(row, row + 1) for row in range(rows)), accept=JSON)
    writer = _line_writer(order, scorer, "row", closing)
    return Job("row", rows, lambda: scorer.run(source, writer), [order.output] if order.output else [])


def _rows_to_arrays(
    order: ScoreOrder,
    scorer: Scorer,
    arrays: Arrays,
    rows: int,
    batching: BatchingSettings,
    tell: Tell,
    closing: ExitStack,
) -> Job:
    assert order.output is not None
    outputs = paths_for(order.output, scorer.signature)
    errors = order.output.with_suffix(".errors.jsonl")
    for path in (*outputs, *map(partial, outputs), errors):
        _spare(path, order)
    descriptor = _claimed(errors, closing)
    closing.callback(_drop_if_empty, errors, descriptor)  # before it is let go
    error_writer = LineWriter(descriptor, str(errors), scorer.codecs.encode, "row", scorer.counts)
    writer = ArrayWriter(error_writer, rows, scorer.counts)
    closing.callback(writer.close, tell)
    for path, spec in zip(outputs, scorer.signature.outputs, strict=True):
        writer.add(NpyFile(path, spec, rows))
    for path in outputs:  # what stands there in the end is of this run
        if path.is_file():
            path.unlink()
    passes = Passes(scorer, arrays, order.name, writer, batching)
    return Job("row", rows, passes.run, [*outputs, errors])


def _line_writer(order: ScoreOrder, scorer: Scorer, unit: str, closing: ExitStack) -> LineWriter:
    if order.output is None:
        return LineWriter(STDOUT, "standard output", scorer.codecs.encode, unit, scorer.counts)
    _spare(order.output, order)
    return LineWriter(_claimed(order.output, closing), str(order.output), scorer.codecs.encode, unit, scorer.counts)


def _spare(path: Path, order: ScoreOrder) -> None:
    """A device or a pipe may be there before; a file only if its loss was asked for, and never the input."""
    if not path.is_file():
        return
    if os.path.samestat(path.stat(), os.fstat(0) if order.file == STDIN else order.file.stat()):
        raise BadConfiguration(f"{path} is the input itself: give another name")
    check_unclaimed(path)
    if not order.force:
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

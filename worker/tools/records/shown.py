"""Shows records beside the tensors that they become and the answers that the model gives to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.codecs.records.paths import Path
from worker.core.records import Answer, Record, Rejection, Tensor
from worker.core.tensors.specs import TensorSpec
from worker.scorer import Scorer
from worker.terminal.terminal import WIDEST, count, printable, write

_MOST_INPUTS, _MOST_ELEMENTS, _LONGEST = 24, 4, 40


def show_trial(screen: Console, scorer: Scorer, records: Sequence[Record]) -> int:
    """Answer these records, and show each with its tensors and its answer. Returns how many are refused.

    Raises `ModelBroken`.
    """
    answers = scorer.records(records)
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for title in ("record", "fields, as the model takes them", "answer"):
        table.add_column(Text(title, "bold"), overflow="fold")
    for record, answer in zip(records, answers, strict=True):
        cells = [record.source, ", ".join(_fields(scorer, record)), _answered(scorer, answer)]
        table.add_row(*[Text(_printable(cell)) for cell in cells])
    write(screen, table, width=min(WIDEST, screen.width))
    return sum(isinstance(answer, Rejection) and not answer.is_silent for answer in answers)


def _fields(scorer: Scorer, record: Record) -> Iterator[str]:
    """Yields the path of each field, and the elements made of it; nothing for a record without tensors."""
    assert scorer.mapping is not None
    inputs, fed_by = scorer.signature.inputs, scorer.mapping.fed_by
    mapped = scorer.mapping.read([record.value or b""], [record])
    if not mapped.good:
        return
    for spec, column in zip(inputs[:_MOST_INPUTS], mapped.tensors, strict=False):
        yield _with_paths(fed_by[spec.name], spec, column[0])
    if more := len(inputs[_MOST_INPUTS:]):
        yield f"and {count(more, 'input')} more"


def _with_paths(paths: Sequence[Path], spec: TensorSpec, tensor: Tensor) -> str:
    elements: Any = tensor if isinstance(tensor, list) else np.frombuffer(tensor, spec.dtype).tolist()
    if len(paths) == len(elements):
        return ", ".join([f"{path} {_cell(value)}" for path, value in zip(paths, elements, strict=True)])
    return f"{', '.join(map(str, paths)) or spec.name} {_cell(elements)}"


def _answered(scorer: Scorer, answer: Answer) -> str:
    """The fields of the answer, a line each; or why there is none."""
    if isinstance(answer, Rejection):
        return "passed over: of another kind" if answer.is_silent else answer.message
    given = msgspec.json.decode(answer[2] or b"{}")
    return "\n".join([f"{spec.name} {_cell(given.get(spec.name))}" for spec in scorer.signature.outputs])


def _cell(value: Any) -> str:
    """The value, shortened."""
    if isinstance(value, list):
        shown = ", ".join(map(_cell, value[:_MOST_ELEMENTS]))
        return f"[{shown}{', …' if len(value) > _MOST_ELEMENTS else ''}]"
    if isinstance(value, bytes):
        return count(len(value), "byte")
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _printable(cell: str) -> str:
    return "\n".join(map(printable, cell.split("\n")))

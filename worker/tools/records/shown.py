"""Shows records beside the tensors that they become and the answers that the model gives to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.core.records import Record, Rejection, Tensor
from worker.core.tensors.specs import TensorSpec
from worker.scorer import Scorer
from worker.terminal.terminal import WIDEST, count, printable, say, write

MOST_COLUMNS = 5  # of inputs, and of fields of the answer
_MOST_ELEMENTS, _LONGEST = 4, 28


def show_trial(screen: Console, scorer: Scorer, records: Sequence[Record]) -> int:
    """Answer these records, and show each with its tensors and its answer. Returns how many have no answer.

    Raises `ModelBroken`.
    """
    assert scorer.mapping is not None
    answers, fed_by = scorer.records(records), scorer.mapping.fed_by
    inputs = scorer.signature.inputs[:MOST_COLUMNS]
    fields = [spec.name for spec in scorer.signature.outputs[:MOST_COLUMNS]]
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column(Text("record", "dim"), overflow="fold")
    for spec in inputs:
        table.add_column(Text(printable(f"{spec.name}\n← {', '.join(map(str, fed_by[spec.name]))}")), overflow="fold")
    for name in fields:
        table.add_column(Text(printable(f"→ {name}"), "bold"), overflow="fold")
    refused: list[str] = []
    for record, answer in zip(records, answers, strict=True):
        if isinstance(answer, Rejection):
            why = "passed over: another kind" if answer.is_silent else answer.message
            refused.append(f"{record.source}: {why}")
            continue
        given = msgspec.json.decode(answer[2] or b"{}")
        cells = [_cell(given.get(name)) for name in fields]
        table.add_row(*map(_text, [record.source, *_tensors(scorer, record, inputs), *cells]))
    if table.row_count:
        write(screen, table, width=max(WIDEST, screen.width))
    left = len(scorer.signature.inputs) - len(inputs), len(scorer.signature.outputs) - len(fields)
    if any(left):
        say(screen, f"  and {count(left[0], 'more input')}, {count(left[1], 'more field')} of the answer")
    for why in refused:
        say(screen, printable(f"  no answer to {why}"))
    return len(refused)


def _tensors(scorer: Scorer, record: Record, inputs: Sequence[TensorSpec]) -> Iterator[str]:
    assert scorer.mapping is not None
    mapped = scorer.mapping.read([record.value or b""], [record])
    for spec, column in zip(inputs, mapped.tensors, strict=False):
        yield _cell(_elements(spec, column[0]))


def _elements(spec: TensorSpec, tensor: Tensor) -> Any:
    if isinstance(tensor, list):
        return tensor[0] if len(tensor) == 1 else tensor
    numbers: Any = np.frombuffer(tensor, spec.dtype)
    return numbers[0] if numbers.size == 1 else numbers[: _MOST_ELEMENTS + 1].tolist()


def _cell(value: Any) -> str:
    """The value, shortened."""
    if isinstance(value, list | tuple):
        shown = ", ".join(map(_cell, value[:_MOST_ELEMENTS]))
        return f"{shown}, …" if len(value) > _MOST_ELEMENTS else shown
    if isinstance(value, bytes):
        return count(len(value), "byte")
    text = f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _text(cell: str) -> Text:
    return Text(printable(cell))

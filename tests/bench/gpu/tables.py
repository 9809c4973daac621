"""The parts' JSON files as the tables of a page. Pure, but for reading them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.gpu.results import DONE, Line, read
from tests.bench.gpu.stage import Column, Part
from tests.bench.measuring.results import Section, markdown

NOTHING = "-"


def page(folder: Path, parts: Sequence[Part]) -> str:
    """All that were run."""
    files = [(part, found) for part in parts if (found := read(folder, part.name)) is not None]
    assert files, f"no results in {folder}"
    return "\n".join(line for part, found in files for line in markdown(section(part, found), _label(found)))


def section(part: Part, found: Mapping[str, Any]) -> Section:
    """One part's table. Cases that failed, figures that are missing and an end before the end are told beneath it."""
    lines: Sequence[Line] = found["lines"]
    measured = [line for line in lines if "failed" not in line]
    notes = part.notes(measured)
    notes += [f"{_labels(part, line)}: {line['failed']}" for line in lines if "failed" in line]
    notes += [f"missing: {why}" for why in dict.fromkeys(line.get("missing") for line in measured) if why]
    if found["ended"] != DONE:
        notes.append(str(found["ended"]))
    columns = [column.heading for column in part.columns]
    return Section(part.title, part.how, columns, [_row(part.columns, line) for line in measured], notes=notes)


def _label(found: Mapping[str, Any]) -> str:
    return f"_{found.get('about', 'machine unknown')}_"


def _labels(part: Part, line: Line) -> str:
    """What a failed case was of."""
    known = [line.get(column.key) for column in part.columns]
    return ", ".join(each for each in known if isinstance(each, str))


def _row(columns: Sequence[Column], line: Line) -> list[str]:
    return [_cell(column, line.get(column.key)) for column in columns]


def _cell(column: Column, value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or NOTHING
    return format(int(value) if column.form == "d" else value, column.form)

"""Tables of records: the rows of a CSV or a Parquet file, each as a JSON object, as it would be on a topic.

A cell of a CSV is a text, so numbers and booleans are read from texts (`from_texts`), and an empty cell is a missing
field. A name with dots is a path: `customer.country` is a field of the object `customer`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from worker.core.failures import BadConfiguration, Incomplete
from worker.core.foreign_values import DAMAGED
from worker.tools.lines import LONGEST

_AT_ONCE = 1024  # rows of a Parquet file


def from_texts(wanted: Any) -> Callable[[Any], Any]:
    """Makes the function that reads a JSON object as this type, also where texts stand for numbers and booleans."""
    decode: Callable[[Any], Any] = msgspec.json.Decoder(wanted, strict=False).decode
    return decode


def csv_lines(path: Path, name: str) -> Iterator[bytes]:
    """Yields each row of a CSV in UTF-8 as a JSON object, by the names in its first line.

    Raises `BadConfiguration` for a file without names, and `Incomplete` where it cannot be read on.
    """
    csv.field_size_limit(LONGEST)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            paths = _paths(next(rows, []), name)
            for row in rows:
                if len(row) > len(paths):
                    wide = f"{len(row)} cells, and the first line has {len(paths)}"
                    raise Incomplete(f"{name}: line {rows.line_num} has {wide}; put texts with commas in quotes")
                if row:
                    yield msgspec.json.encode(_nested(paths, row))
    except (csv.Error, UnicodeDecodeError) as error:
        raise Incomplete(f"{name}: cannot be read on as CSV in UTF-8: {error}") from error


def parquet_lines(path: Path, name: str) -> Iterator[bytes]:
    """Yields each row of a Parquet file as a JSON object: instants and decimals as texts, bytes in base64.

    Raises `BadConfiguration` for a file that is none, and without pyarrow; `Incomplete` where it cannot be read on.
    """
    try:
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BadConfiguration(
            f"{name}: a Parquet file is read by pyarrow, which is not installed: "
            "pip install 'inference-worker[parquet]'"
        ) from error
    try:
        file = ParquetFile(path)
    except DAMAGED as error:
        raise BadConfiguration(f"{name}: cannot be read as Parquet: {error}") from error
    try:
        for rows in file.iter_batches(_AT_ONCE):
            yield from map(msgspec.json.encode, rows.to_pylist())
    except DAMAGED as error:
        raise Incomplete(f"{name}: cannot be read to its end: {error}") from error


# By the ending of a file's name.
TABLES: Mapping[str, Callable[[Path, str], Iterator[bytes]]] = {
    ".csv": csv_lines,
    ".parquet": parquet_lines,
}


def _paths(names: Sequence[str], name: str) -> list[list[str]]:
    if not any(names) or len(set(names)) < len(names):
        raise BadConfiguration(f"{name}: the first line must name the columns, each with another name")
    known = set(names)
    for column in names:
        outer = column
        while "." in outer:
            outer = outer.rpartition(".")[0]
            if outer in known:
                raise BadConfiguration(f"{name}: column {outer} is a value, and {column} a field in it: rename one")
    return [column.split(".") for column in names]


def _nested(paths: Sequence[Sequence[str]], row: Sequence[str]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for steps, cell in zip(paths, row, strict=False):
        if cell:
            within = record
            for step in steps[:-1]:
                within = within.setdefault(step, {})
            within[steps[-1]] = cell
    return record

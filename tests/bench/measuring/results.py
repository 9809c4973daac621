"""What a measurement has to say: tables and bars, in the terminal and as Markdown, and the machine it was made on."""

from __future__ import annotations

import ast
import datetime
import importlib.metadata
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.bench.loops.by_hand import ABOUT
from tests.bench.measuring.running import PEERS, ROOT, peer_versions

RESULTS = Path(__file__).parents[1] / "RESULTS.md"
OURS = ("confluent-kafka", "onnxruntime-gpu", "onnxruntime", "numpy", "orjson")


@dataclass(frozen=True, slots=True)
class Bar:
    """What a figure must reach, and what it is."""

    what: str
    figure: float
    least: float | None = None
    most: float | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it does."""
        return (self.least is None or self.figure >= self.least) and (self.most is None or self.figure <= self.most)

    def __str__(self) -> str:
        bound = f"at least {self.least:g}" if self.least is not None else f"at most {self.most:g}"
        if math.isnan(self.figure):
            return f"{self.what}: not measured, wanted {bound}"
        return f"{self.what}: {self.figure:.3g}, wanted {bound}: {'kept' if self.is_kept else 'MISSED'}"


@dataclass(frozen=True, slots=True)
class Section:
    """One table with what was measured and how. `notes`: what one must know to read it."""

    title: str
    how: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    bars: Sequence[Bar] = ()
    notes: Sequence[str] = ()


def show(section: Section, console: Console) -> None:
    """To the terminal."""
    console.rule(escape(section.title))
    console.print(section.how, style="dim", highlight=False)
    table = Table(section.columns[0])
    for column in section.columns[1:]:
        table.add_column(column, justify="right")
    for line in section.lines:
        table.add_row(*map(escape, line))
    console.print(table)
    for each in [*section.bars, *section.notes]:
        console.print(f"- {each}", highlight=False, markup=False)


def write(
    measured: Mapping[str, Sequence[Section]], cases: Iterable[str], rounds: int, broker: str, load: float
) -> None:
    """All of it as Markdown, with the machine, its load before, the versions and the date.

    `measured` has the sections of each case that was run. What the file says of the others of all `cases` is kept.
    """
    kept = _sections_by_case(RESULTS.read_text()) if RESULTS.exists() else {}
    label = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {rounds} rounds, at {_commit()}"
    now = {
        case: [line for section in sections for line in markdown(section, f"_{case}: {label}_")]
        for case, sections in measured.items()
    }
    parts = [_HEAD, *_about(broker, load), *(line for case in cases for line in now.get(case) or kept.get(case, []))]
    RESULTS.write_text("\n".join([*parts, *_contenders()]) + "\n")


def _sections_by_case(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in text.split("\n## ")[1:]:
        if (case := re.search(r"^_(\w+): ", part, re.MULTILINE)) is not None:
            found.setdefault(case[1], []).append(f"## {part.rstrip()}\n")
    return found


def _commit() -> str:
    asked = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()  # noqa: S603


_HEAD = """# Measured

Written by `make bench`, not by hand; what each contender does and does not do stands at the end. Contenders take turns
within a round; figures are medians of the rounds, ratios are medians of ratios within a round. A run of some cases
keeps what was measured of the others: each section says when that was. The machine and the versions are the last run's.
"""
_WORKER = "all that it does by default, with metrics on; only the batch size is set, for texts the buckets as well"
_ALONE = "that library alone, in a process of its own"
_NATIVE = (
    "the same at least once for plain rows, in C on the same two libraries, with the worker's client settings: judges "
    "rows, batches by size and linger, reads and writes headers, keeps order, hears of each answer, commits behind, "
    "answers errors, lets go of partitions; no JSON, no metrics, no dead letters, no deadlines, no halved batches"
)


def _about(broker: str, load: float) -> list[str]:
    ours = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in OURS if _has(name))
    peers = ", ".join(f"{name} {version}" for name, version in peer_versions().items())
    return [
        f"- {os.cpu_count()} cores ({processor()}), {platform.system()} {platform.release()}, load average {load:.1f}",
        "  before; broker, contenders and clocks share them: compare ratios, not rows/s",
        f"- {broker}, Python {platform.python_version()}, {ours}",
        f"- peers, in an environment of their own as its lock has it: {peers}",
        "",
    ]


def _has(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def processor() -> str:
    """Its name, by Linux."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))


def markdown(section: Section, label: str) -> list[str]:
    """Its lines; `label` says which run it is of."""
    rows = [section.columns, ["---", *["---:"] * (len(section.columns) - 1)], *section.lines]
    said = [f"- {each}" for each in [*section.bars, *section.notes]]
    return [
        f"## {section.title}",
        "",
        label,
        "",
        section.how,
        "",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        *said,
        "",
    ]


def _contenders() -> list[str]:
    """What each does, in the words of its own module."""
    about = {"worker": _WORKER, "native": _NATIVE, **ABOUT, "onnxruntime": _ALONE}
    about |= {name: _docstring(ROOT / "tests" / "bench" / "peers" / f"{name}.py") for name in PEERS}
    lines = [f"| {name} | {what} |" for name, what in about.items()]
    return ["## Who takes part", "", "| | does |", "| --- | --- |", *lines]


def _docstring(module: Path) -> str:
    return " ".join((ast.get_docstring(ast.parse(module.read_text())) or "").split())

"""A measurement's tables and bars, in the terminal and as Markdown, with a description of the machine."""

from __future__ import annotations

import ast
import datetime
import importlib.metadata
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.ground import ROOT
from bench.loops import by_hand, polls, records
from bench.running import PEERS, peer_versions

RESULTS = ROOT / "bench" / "RESULTS.md"
OURS = ("confluent-kafka", "onnxruntime-gpu", "onnxruntime", "numpy", "orjson")


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure, and the bound that it must keep."""

    what: str
    figure: float
    least: float | None = None
    most: float | None = None

    @property
    def is_kept(self) -> bool:
        """True if the figure keeps its bound."""
        return (self.least is None or self.figure >= self.least) and (self.most is None or self.figure <= self.most)

    def __str__(self) -> str:
        bound = f"at least {self.least:g}" if self.least is not None else f"at most {self.most:g}"
        if math.isnan(self.figure):
            return f"{self.what}: not measured, wanted {bound}"
        return f"{self.what}: {self.figure:.3g}, wanted {bound}: {'kept' if self.is_kept else 'MISSED'}"


@dataclass(frozen=True, slots=True)
class Section:
    """One table, and how it was measured. `notes` has further facts that a reader must know."""

    title: str
    how: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    bars: Sequence[Bar] = ()
    notes: Sequence[str] = ()


def show(section: Section, console: Console) -> None:
    """Print a section in the terminal."""
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
    """Write all sections as Markdown, with the machine, its earlier load, the versions and the date.

    `measured` has the sections of each case that was run. The file keeps its sections of other `cases`.
    """
    kept = _sections_by_case(RESULTS.read_text()) if RESULTS.exists() else {}
    label = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {rounds} rounds, at {_commit()}"
    now = {
        case: [line for section in _once_each(sections) for line in markdown(section, f"_{case}: {label}_")]
        for case, sections in measured.items()
    }
    parts = [_HEAD, *_about(broker, load), *(line for case in cases for line in now.get(case) or kept.get(case, []))]
    RESULTS.write_text("\n".join([*parts, *_contenders()]) + "\n")


def _once_each(sections: Sequence[Section]) -> Iterator[Section]:
    """Yields the sections. An explanation that repeats the previous section's is left out."""
    said = ""
    for section in sections:
        yield replace(section, how="" if section.how == said else section.how)
        said = section.how


def _sections_by_case(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in text.split("\n## ")[1:]:
        if (case := re.search(r"^_(\w+): ", part, re.MULTILINE)) is not None:
            found.setdefault(case[1], []).append(f"## {part.rstrip()}\n")
    return found


def _commit() -> str:
    asked = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


_HEAD = """# Measured

Written by `make bench`, not by hand. Contenders take turns within a round; figures are medians of the rounds, ratios
are medians of ratios within a round. A run of some cases keeps the other cases' sections; each says when it was
measured. The machine and the versions are the last run's. The contenders are described at the end.
"""
_WORKER = "all that it does by default, with metrics on; only the batch size is set"
_BARE = "a `hand_loop` with the work of"
_ALONE = "ONNX Runtime alone, in a process of its own"
_NATIVE = (
    "at least once for plain rows, in C on the worker's two libraries, with its client settings; no JSON, no metrics, "
    "no dead letters, no deadlines, no halved batches"
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
    """Returns the processor's name, as Linux tells it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))


def markdown(section: Section, label: str) -> list[str]:
    """Returns the section's lines, with the bars that were missed. `label` names its run."""
    rows = [section.columns, ["---", *["---:"] * (len(section.columns) - 1)], *section.lines]
    missed = [bar for bar in section.bars if not bar.is_kept]
    kept = [f"{len(section.bars) - len(missed)} of {len(section.bars)} bars kept"] if len(section.bars) > 1 else []
    said = [f"- {each}" for each in [*missed, *kept, *section.notes]]
    return [
        f"## {section.title}",
        "",
        label,
        "",
        *([section.how, ""] if section.how else []),
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        *said,
        "",
    ]


def _contenders() -> list[str]:
    """Returns the table of the contenders, each in the words of its own module."""
    about = {"worker": _WORKER, "native": _NATIVE, **by_hand.ABOUT, "onnxruntime": _ALONE}
    about |= {name: loop.about for name, loop in polls.LOOPS.items()}
    about |= {f"{records.PREFIX}{name}": f"{_BARE} `plain_{name}`" for name in records.JOBS}
    about |= {name: _docstring(ROOT / "bench" / "peers" / f"{name}.py") for name in PEERS}
    lines = [f"| {name} | {what} |" for name, what in about.items()]
    return ["## Who takes part", "", "| | does |", "| --- | --- |", *lines]


def _docstring(module: Path) -> str:
    """Returns the first paragraph of a module's docstring."""
    told = ast.get_docstring(ast.parse(module.read_text())) or ""
    return " ".join(told.partition("\n\n")[0].split())

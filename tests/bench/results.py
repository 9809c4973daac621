"""What a measurement has to say: tables and bars, in the terminal and as Markdown, and the machine it was made on."""

from __future__ import annotations

import ast
import datetime
import importlib.metadata
import math
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.bench.contenders import ABOUT
from tests.bench.running import PEERS, ROOT, peer_versions

RESULTS = Path(__file__).with_name("RESULTS.md")
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


def write(sections: Iterable[Section], broker: str, minutes: float, load: float) -> None:
    """All of it as Markdown, with the machine, its load before, the versions and the date."""
    parts = [
        _HEAD,
        *_about(broker, minutes, load),
        *(line for section in sections for line in _markdown(section)),
        *_contenders(),
    ]
    RESULTS.write_text("\n".join(parts) + "\n")


_HEAD = """# Measured

Written by `make bench`, not by hand; what each contender does and does not do stands at the end. Contenders take turns
within a round; figures are medians of the rounds, ratios are medians of ratios within a round.
"""
_WORKER = "all that it does by default, with metrics on; only the batch size is set, for texts the buckets as well"
_ALONE = "that library alone, in a process of its own"


def _about(broker: str, minutes: float, load: float) -> list[str]:
    now = datetime.datetime.now(datetime.UTC)
    ours = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in OURS if _has(name))
    peers = ", ".join(f"{name} {version}" for name, version in peer_versions().items()) or "none is installed"
    return [
        f"- {now:%Y-%m-%d}, {minutes:.0f} minutes",
        f"- {os.cpu_count()} cores ({_processor()}), {platform.system()} {platform.release()}, load average {load:.1f}",
        "  before; broker, contenders and clocks share them: compare ratios, not rows/s",
        f"- {broker}, Python {platform.python_version()}, {ours}",
        f"- peers, in an environment of their own: {peers}",
        "",
    ]


def _has(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))


def _markdown(section: Section) -> list[str]:
    rows = [section.columns, ["---", *["---:"] * (len(section.columns) - 1)], *section.lines]
    said = [f"- {each}" for each in [*section.bars, *section.notes]]
    return [f"## {section.title}", "", section.how, "", *(f"| {' | '.join(row)} |" for row in rows), "", *said, ""]


def _contenders() -> list[str]:
    """What each does, in the words of its own module."""
    about = {"worker": _WORKER, **ABOUT, "onnxruntime": _ALONE}
    about |= {name: _docstring(ROOT / "tests" / "bench" / "peers" / f"{name}.py") for name in PEERS}
    lines = [f"| {name} | {what} |" for name, what in about.items()]
    return ["## Who takes part", "", "| | does |", "| --- | --- |", *lines]


def _docstring(module: Path) -> str:
    return " ".join((ast.get_docstring(ast.parse(module.read_text())) or "").split())

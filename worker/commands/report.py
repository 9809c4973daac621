"""The findings of `check`: facts, problems that keep a worker from starting, and warnings that do not.

Names come from the model and the cluster: their control characters never reach the terminal.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.core.failures import Stop
from worker.settings.effective import Effective
from worker.terminal.terminal import WIDEST, count, printable, write

Row = tuple[str, str]
Headers = Sequence[tuple[str, bytes | None]]
# The most characters of an example that a terminal shows.
_LONGEST_BODY = 2_000


@dataclass(slots=True)
class Report:
    """The findings of all checks. Each check adds its part.

    `max_bytes` limits the records of topics; `created` has the topics that were made, with their partitions.
    `example` has headers and value of a `request` of one row, or of a `record`, and its `answer`. `records` has what
    feeds each input, what the answer has, and how the newest records fared; empty for requests.
    """

    settings: Sequence[Effective] = ()
    model: dict[str, str] = field(default_factory=dict)
    records: dict[str, str] = field(default_factory=dict)
    cluster: dict[str, str] = field(default_factory=dict)
    max_bytes: Mapping[str, int] = field(default_factory=dict)
    created: Mapping[str, int] = field(default_factory=dict)
    example: Mapping[str, tuple[Headers, bytes]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    exit_code: int = 0

    def add(self, stop: Stop) -> None:
        """Add a reason why a worker would end, one problem for each of its lines."""
        self.refuse(str(stop).splitlines(), stop.exit_code)

    def refuse(self, problems: Sequence[str], exit_code: int) -> None:
        """Add problems. The first failed check decides the exit code, because checks run in a worker's own order."""
        self.problems += problems
        self.exit_code = self.exit_code or exit_code

    def warn(self, *texts: str | None) -> None:
        """Add warnings; None is no warning."""
        self.warnings += [text for text in texts if text is not None]

    def as_json(self) -> dict[str, Any]:
        """The report as plain values, one member for each section."""
        return {
            "starts": not self.problems,
            "exit_code": self.exit_code,
            "problems": [{"text": problem} for problem in self.problems],
            "warnings": [{"text": warning} for warning in self.warnings],
            "settings": {s.name: {"value": s.value, "is_default": s.is_default} for s in self.settings},
            "model": self.model,
            "records": self.records,
            "cluster": self.cluster,
            "max_bytes": dict(self.max_bytes),
            "created": dict(self.created),
            "example": {name: _encoded(*shown) for name, shown in self.example.items()} or None,
        }


def _encoded(headers: Headers, body: bytes) -> dict[str, Any]:
    named = {key: value and value.decode() for key, value in headers}
    return {"headers": named, "value_base64": base64.b64encode(body).decode()}


def show(console: Console, report: Report) -> None:
    """Write the report: facts, then warnings and problems, then the verdict. Defaults are left out."""
    page = _Page(console)
    page.section("Settings", ((setting.name, setting.text) for setting in report.settings if not setting.is_default))
    page.section("Model", report.model.items())
    page.section("Records", report.records.items())
    page.section("Cluster", report.cluster.items())
    page.section("Topics created", ((topic, count(number, "partition")) for topic, number in report.created.items()))
    for name, (headers, body) in report.example.items():
        page.body(f"Example: {name}", headers, body)
    page.findings("Warnings", "yellow", report.warnings)
    page.findings("Problems", "red", report.problems)
    if report.problems:
        many = count(len(report.problems), "problem")
        page.line(f"These settings are not fit to serve: {many}, exit code {report.exit_code}.", "bold red", gap=True)
    else:
        page.line("A worker with these settings starts.", "bold green", gap=True)


class _Page:
    """Writes sections of names and values, with a gap between them. Owns the note that something is written."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(console.width, WIDEST)
        self._is_empty = True

    def section(self, title: str, rows: Iterable[Row]) -> None:
        if rows := list(rows):
            self.line(title, "bold", gap=True)
            self.rows(rows)

    def rows(self, rows: Iterable[Row]) -> None:
        """Write names and values in two columns."""
        table = Table.grid(padding=(0, 2))
        for name, value in rows:
            table.add_row(Text(printable(name), "dim", no_wrap=True), Text(printable(value), overflow="fold"))
        if table.row_count:
            write(self._console, table, width=self._width)

    def body(self, title: str, headers: Headers, body: bytes) -> None:
        """Write a body on one line that can be copied. Only the JSON report has a long body, or one that is no text."""
        self.line(title, "bold", gap=True)
        self.rows((key, (value or b"").decode()) for key, value in headers)
        is_short = len(body) <= _LONGEST_BODY and body.isascii() and body.decode("ascii").isprintable()
        self.line(f"  {body.decode('ascii') if is_short else f'{len(body):,} bytes, which --json shows'}")

    def findings(self, title: str, style: str, findings: Sequence[str]) -> None:
        if findings:
            self.line(title, f"bold {style}", gap=True)
        for finding in findings:
            table = Table.grid(padding=(0, 1))
            table.add_row(Text("•", style), Text(printable(finding), overflow="fold"))
            write(self._console, table, width=self._width)

    def line(self, text: str, style: str = "", *, gap: bool = False) -> None:
        if gap and not self._is_empty:
            self._console.print()
        self._is_empty = False
        self._console.print(Text(printable(text), style), soft_wrap=True)

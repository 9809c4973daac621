"""A part's results as a JSON file: written anew with each line, so that a run that is cut keeps what it has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Line = Mapping[str, float | str | None]
CUT, DONE = "cut before its end", "all measured"


class Results:
    """One part's. `about` says what was asked for, and on which machine."""

    def __init__(self, folder: Path, part: str, about: Mapping[str, Any]) -> None:
        self._path = path_of(folder, part)
        self._lines: list[Line] = []
        self._all: dict[str, Any] = {"part": part, **about, "ended": CUT, "lines": self._lines}
        self._write()

    def add(self, line: Line) -> None:
        """One line of the table, or a `failed` with the reason in its place."""
        self._lines.append(line)
        self._write()

    def end(self, how: str) -> None:
        """That nothing comes after, and why."""
        self._all["ended"] = how
        self._write()

    def _write(self) -> None:
        whole = self._path.with_suffix(".part")
        whole.write_text(json.dumps(self._all, indent=1) + "\n")
        whole.replace(self._path)


def path_of(folder: Path, part: str) -> Path:
    return folder / f"gpu-{part}.json"


def read(folder: Path, part: str) -> dict[str, Any] | None:
    """What the file of a part says; None: there is none."""
    path = path_of(folder, part)
    return json.loads(path.read_text()) if path.exists() else None


def cut(folder: Path, part: str, why: str) -> None:
    """Say in the file of a part that was killed, or that never began, why it ends there; unless the file says it."""
    found = read(folder, part) or {"part": part, "ended": CUT, "lines": []}
    if found["ended"] == CUT:
        path_of(folder, part).write_text(json.dumps({**found, "ended": why}, indent=1) + "\n")

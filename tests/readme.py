"""The Markdown pages that users read: their fenced blocks, so that tests run what a page shows, and their links.

A block's name is the second word behind its fence, which no renderer shows:

    ```sh publish-json        language "sh", name "publish-json"
    ```python                 language "python", no name
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))  # what a user reads from front to back

_FENCE = re.compile(r"\s*(?P<fence>`{3,})\s*(?P<language>[^\s`]*)\s*(?P<name>[^\s`]*)\s*")
_CODE = re.compile(r"`[^`\n]*`")


class Block(NamedTuple):
    """One fenced block. `language` and `name` are empty where the page gives none; `text` ends with a newline."""

    language: str
    name: str
    text: str


def blocks(path: Path) -> list[Block]:
    """The page's blocks in order. Raises `ValueError` for a fence that is never closed, or a name used twice."""
    return blocks_of([path])


def blocks_of(paths: Sequence[Path]) -> list[Block]:
    """The blocks of several pages. A name may be used only once in all of them."""
    found = [
        block for path in paths for block in _blocks(path.read_text(encoding="utf-8").splitlines(keepends=True), path)
    ]
    names = [block.name for block in found if block.name]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{', '.join(map(str, paths))}: several blocks are called {', '.join(sorted(twice))}")
    return found


def prose(path: Path) -> str:
    """The page without its fenced blocks."""
    rest = iter(enumerate(path.read_text(encoding="utf-8").splitlines(keepends=True), 1))
    lines: list[str] = []
    for number, line in rest:
        if fence := _FENCE.fullmatch(line):
            _body(rest, fence["fence"], f"{path}:{number}")
        else:
            lines.append(line)
    return "".join(lines)


def links(path: Path) -> list[str]:
    """The targets of the page's links, as written."""
    return re.findall(r"\]\(([^)\s]+)\)", _CODE.sub("", prose(path)))


def anchors(path: Path) -> set[str]:
    """The anchors that a link may name behind `#`: one for each heading, made like GitHub's."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", prose(path), re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = 0
        while (name := f"{anchor}-{count}" if count else anchor) in found:
            count += 1
        found.add(name)
    return found


def _blocks(lines: list[str], path: Path) -> Iterator[Block]:
    rest = iter(enumerate(lines, 1))
    for number, line in rest:
        if fence := _FENCE.fullmatch(line):
            yield Block(fence["language"], fence["name"], _body(rest, fence["fence"], f"{path}:{number}"))


def _body(rest: Iterator[tuple[int, str]], fence: str, where: str) -> str:
    body: list[str] = []
    for _, line in rest:
        bare = line.strip()
        if bare.startswith(fence) and not bare.strip("`"):
            return dedent("".join(body))
        body.append(line)
    raise ValueError(f"{where}: the block is never closed")

"""The fenced blocks of a Markdown page, so that tests run what the page shows and the two cannot drift apart.

A block is named by the second word behind its fence, which no renderer shows:

    ```sh publish-json        language "sh", name "publish-json"
    ```python                 language "python", no name
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

_FENCE = re.compile(r"\s*(?P<fence>`{3,})\s*(?P<language>[^\s`]*)\s*(?P<name>[^\s`]*)\s*")


class Block(NamedTuple):
    """One fenced block. `language` and `name` are empty where the page gives none; `text` ends with a newline."""

    language: str
    name: str
    text: str


def blocks(path: Path) -> list[Block]:
    """The page's blocks in order. Raises `ValueError` for a fence that is never closed, or a name used twice."""
    found = list(_blocks(path.read_text(encoding="utf-8").splitlines(keepends=True), path))
    names = [block.name for block in found if block.name]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path}: several blocks are called {', '.join(sorted(twice))}")
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

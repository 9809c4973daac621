"""The table of faults in tests/README.md: every fault, and tests that exist. And the clock that jumps, which is one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
WORKER = TESTS.parent / "worker"
FAULTS = range(1, 39)
_ROW = re.compile(r"^\| (\d+) \| [^|]+ \| [SMK ]+ \| ([^|]+) \|$", re.MULTILINE)
_NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
ROWS = [(int(number), where) for number, where in _ROW.findall((TESTS / "README.md").read_text())]

# The rooms that decide, and those that act on it. The others show times to people.
DECIDING = ("core", "codecs", "delivery", "inference", "kafka", "loop")
JUMPING = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}


def test_every_fault_has_its_row() -> None:
    """Each once, in order."""
    assert [number for number, _ in ROWS] == list(FAULTS)


@pytest.mark.parametrize(("number", "where"), ROWS)
def test_a_fault_is_tested_by_what_exists_or_it_is_said_why_not(number: int, where: str) -> None:
    """Each test that is named is in the file that is named; where none is, `not tested:` and a reason stand there."""
    named = _NAMED.findall(where)

    assert named or re.search(r"not tested: .{20,}", where), f"row {number} names no test and no reason"
    assert where.count("::") == len(named), f"row {number} names something that is no test"
    for path, name in named:
        assert name.startswith("test_")
        assert name in _functions(TESTS / path), f"row {number}: there is no {name} in {path}"


def _functions(path: Path) -> set[str]:
    """What a file defines. It is read, not imported: it may need what is not here."""
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_nothing_that_decides_reads_a_clock_that_jumps() -> None:
    """Time is monotonic, or passed in, wherever it is decided upon."""
    files = [*_files()]

    found = {file.relative_to(WORKER): used for file in files if (used := _used(file) & JUMPING)}

    assert len(files) > len(DECIDING)
    assert not found


def _files() -> Iterator[Path]:
    for room in DECIDING:
        path = WORKER / room
        yield from path.rglob("*.py") if path.is_dir() else [path]


def _used(file: Path) -> set[str]:
    """`a.b` wherever it stands in a file."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)]
    return {f"{node.value.id}.{node.attr}" for node in nodes if isinstance(node.value, ast.Name)}

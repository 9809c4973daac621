"""The table of faults in tests/README.md names existing tests for every fault. The jumping clock is tested here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
WORKER = TESTS.parent / "worker"
FAULTS = range(1, 46)
_ROW = re.compile(r"^\| (\d+) \| [^|]+ \| [SMK ]+ \| ([^|]+) \|$", re.MULTILINE)
_NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
ROWS = [(int(number), where) for number, where in _ROW.findall((TESTS / "README.md").read_text())]

# The packages that decide, and those that act on decisions. The others show times to people.
DECIDING = ("core", "codecs", "delivery", "inference", "kafka", "loop")
JUMPING = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}


def test_every_fault_has_its_row() -> None:
    """Each fault has one row, in order."""
    assert [number for number, _ in ROWS] == list(FAULTS)


@pytest.mark.parametrize(("number", "where"), ROWS)
def test_a_fault_is_tested_by_what_exists_or_it_is_said_why_not(number: int, where: str) -> None:
    """Each named test is in the named file. A row without tests has `not tested:` and a reason."""
    named = _NAMED.findall(where)

    assert named or re.search(r"not tested: .{20,}", where), f"row {number} names no test and no reason"
    assert where.count("::") == len(named), f"row {number} names something that is no test"
    for path, name in named:
        assert name.startswith("test_")
        assert name in _functions(TESTS / path), f"row {number}: there is no {name} in {path}"


def _functions(path: Path) -> set[str]:
    """The functions that a file defines. It is read, not imported: it may need modules that are missing."""
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_nothing_that_decides_reads_a_clock_that_jumps() -> None:
    """Time for decisions is monotonic, or passed in."""
    files = [*_files()]

    found = {file.relative_to(WORKER): used for file in files if (used := _used(file) & JUMPING)}

    assert len(files) > len(DECIDING)
    assert not found


def _files() -> Iterator[Path]:
    for room in DECIDING:
        path = WORKER / room
        yield from path.rglob("*.py") if path.is_dir() else [path]


def _used(file: Path) -> set[str]:
    """Every `a.b` in a file."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)]
    return {f"{node.value.id}.{node.attr}" for node in nodes if isinstance(node.value, ast.Name)}

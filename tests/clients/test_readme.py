"""The tests run all the blocks and programs of the page."""

from __future__ import annotations

from pathlib import Path

from tests.clients.stage import PAGE, PROGRAMS
from tests.readme import blocks


def test_no_program_of_the_wire_contract_goes_untried() -> None:
    """Each block has a name, each program a file, and a test calls it by that name."""
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))

    programs = [block for block in blocks(PAGE) if block.language not in ("", "text")]

    assert programs
    assert [block for block in programs if not block.name or f'"{block.name}"' not in tests] == []
    assert [path.name for path in PROGRAMS.iterdir() if f'"{path.name}"' not in tests] == []

"""How tests find the blocks of a page that they run, and that they run all there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.stage import PAGE, PROGRAMS
from tests.readme import Block, blocks


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_block_is_known_by_its_language_and_its_name(tmp_path: Path) -> None:
    """The words behind the fence; what stands between the blocks is passed over."""
    text = "Hello\n```sh greet\necho ü\n\necho 2\n```\nand\n\n```python\npass\n```\n```\nnothing\n```\n"

    found = blocks(page(tmp_path, text))

    assert found == [
        Block("sh", "greet", "echo ü\n\necho 2\n"),
        Block("python", "", "pass\n"),
        Block("", "", "nothing\n"),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [("```sh\necho\n", r"page\.md:1: the block is never closed"), ("```sh a\n```\n```sh a\n```\n", "are called a")],
)
def test_a_page_that_cannot_be_run_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """A block that is cut off, or found by chance, would be a test of nothing."""
    with pytest.raises(ValueError, match=why):
        blocks(page(tmp_path, text))


def test_no_program_of_the_wire_contract_goes_untried() -> None:
    """Each block has a name, each program a file, and a test calls it by that name."""
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))

    programs = [block for block in blocks(PAGE) if block.language not in ("", "text")]

    assert programs
    assert [block for block in programs if not block.name or f'"{block.name}"' not in tests] == []
    assert [path.name for path in PROGRAMS.iterdir() if f'"{path.name}"' not in tests] == []

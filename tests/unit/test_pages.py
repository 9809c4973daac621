"""The pages that people read: every link leads somewhere, every file named exists, the first page stays short."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from tests.readme import GUIDE, ROOT, anchors, links, prose
from worker.cli import app

# All Markdown that is ours: not what an installed package or a build brought.
PAGES = (
    *GUIDE,
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")),
    *sorted(ROOT.glob("bench/**/*.md")),
    *sorted(ROOT.glob("deploy/**/*.md")),
    *sorted(ROOT.glob("schemas/**/*.md")),
)
FROM = (ROOT, ROOT / "worker", ROOT / "tests")
# `CONTRIBUTING.md` has the words to use, under "Words".
_STUMBLING = re.compile(
    r"\b(?:nobody|somebody|whoever|whom|lest|whence|in thought|is told|will do|court|convict\w*|acquit\w*|trials?|home"
    r"|hasten\w*|innocent|culprit)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"`[^`]*`")
_FILE = re.compile(r"`([\w.]+(?:/[\w.]+)*/\w+\.py|(?:worker|tests|bench|deploy|schemas)/[\w./]*/)`")
LONGEST_README = 180  # lines: what is longer is not read


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file or folder that exists, and to a heading that it has."""
    broken = [link for link in links(page) if not re.match(r"https?://", link) and not leads_somewhere(page, link)]

    assert broken == []


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or (target.suffix == ".md" and anchor in anchors(target)))


@pytest.mark.parametrize("page", [*GUIDE, ROOT / "CONTRIBUTING.md"], ids=page_name)
def test_every_file_of_the_code_that_is_named_exists(page: Path) -> None:
    """By its path from the root, from `worker/` as the walk of one record has it, or from `tests/`."""
    named = set(_FILE.findall(prose(page)))

    missing = {name for name in named if not any((root / name).exists() for root in FROM)}

    assert missing == set()


@pytest.mark.parametrize("name", ["tools.md", "models.md", "batching.md"])
def test_every_option_that_is_named_exists(name: str) -> None:
    """In some command: the sentence around it says in which."""
    named = set(re.findall(r"`(?:[a-z-]+ )?(--[a-z-]+)", prose(ROOT / "docs" / name)))

    assert named <= options(get_command(app))


def options(command: Any) -> set[str]:
    """Those of a command, and of the commands below it."""
    below = command.commands.values() if isinstance(command, TyperGroup) else ()
    return {word for option in command.params for word in option.opts}.union(*map(options, below))


def test_every_page_of_the_guide_is_in_its_index() -> None:
    """A page that no one links is not found."""
    index = ROOT / "docs/README.md"

    assert {path.name for path in index.parent.glob("*.md")} - {index.name} <= set(links(index))


def test_the_readme_is_short() -> None:
    """What else there is to say has a page in `docs/`."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LONGEST_README


@pytest.mark.parametrize("page", [*GUIDE, ROOT / "CONTRIBUTING.md", ROOT / "tests/README.md"], ids=page_name)
def test_a_page_uses_the_field_s_own_words(page: Path) -> None:
    """None of those that a reader stumbles over, outside of code."""
    assert _STUMBLING.findall(_CODE.sub("", prose(page))) == []

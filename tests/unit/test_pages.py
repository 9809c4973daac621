"""The pages that people read: every link leads somewhere, every named file exists, the first page stays short."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from tests.readme import GUIDE, ROOT, anchors, links, prose
from worker.cli import app

# All our own Markdown, without that of installed packages or builds.
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
LONGEST_README = 180  # lines; a longer one is not read


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """It leads to a file or folder that exists, and to a heading in it."""
    broken = [link for link in links(page) if not re.match(r"https?://", link) and not leads_somewhere(page, link)]

    assert broken == []


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or (target.suffix == ".md" and anchor in anchors(target)))


@pytest.mark.parametrize("page", [*GUIDE, ROOT / "CONTRIBUTING.md"], ids=page_name)
def test_every_file_of_the_code_that_is_named_exists(page: Path) -> None:
    """A path is relative to the root, to `worker/` as in the walk of one record, or to `tests/`."""
    named = set(_FILE.findall(prose(page)))

    missing = {name for name in named if not any((root / name).exists() for root in FROM)}

    assert missing == set()


@pytest.mark.parametrize("name", ["tools.md", "models.md", "batching.md"])
def test_every_option_that_is_named_exists(name: str) -> None:
    """Some command has it; the sentence around it says which."""
    named = set(re.findall(r"`(?:[a-z-]+ )?(--[a-z-]+)", prose(ROOT / "docs" / name)))

    assert named <= options(get_command(app))


def options(command: Any) -> set[str]:
    """The options of a command, and of the commands below it."""
    below = command.commands.values() if isinstance(command, TyperGroup) else ()
    own = {word for option in command.params for word in (*option.opts, *option.secondary_opts)}
    return own.union(*map(options, below))


def test_every_page_of_the_guide_is_in_its_index() -> None:
    """A page without a link to it is not found."""
    index = ROOT / "docs/README.md"

    assert {path.name for path in index.parent.glob("*.md")} - {index.name} <= set(links(index))


def test_the_readme_is_short() -> None:
    """All else has a page in `docs/`."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LONGEST_README


@pytest.mark.parametrize("page", [*GUIDE, ROOT / "CONTRIBUTING.md", ROOT / "tests/README.md"], ids=page_name)
def test_a_page_uses_the_field_s_own_words(page: Path) -> None:
    """Outside of code, no word appears that a reader stumbles over."""
    assert _STUMBLING.findall(_CODE.sub("", prose(page))) == []

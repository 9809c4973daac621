"""Pictures: what may be asked for, and that two of the same are the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from worker.core.failures import BadConfiguration
from worker.tools import picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _draw(empty: Figure) -> None:
    empty.add_subplot().plot([1, 2], [3, 4], label="rows/s")


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")])
def test_the_name_says_what_is_written(name: str, begins: bytes, tmp_path: Path) -> None:
    """PNG or SVG by the suffix, in whatever case."""
    picture.save(tmp_path / name, _draw)

    assert (tmp_path / name).read_bytes().startswith(begins)


def test_the_same_figures_make_the_same_file(tmp_path: Path) -> None:
    """No date and no random name in it: a picture in a repository changes only with what it shows."""
    for name in ("a.svg", "b.svg"):
        picture.save(tmp_path / name, _draw)

    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    """Before anything is measured, in one sentence."""
    with pytest.raises(BadConfiguration, match=r"a\.pdf should end in \.png or \.svg"):
        picture.check(tmp_path / "a.pdf")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A long measurement does not end in a file that cannot be written."""
    with pytest.raises(BadConfiguration, match="there is no folder"):
        picture.check(tmp_path / "absent" / "a.png")


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """In a sentence, not with a traceback."""
    (tmp_path / "a.png").mkdir()

    with pytest.raises(BadConfiguration, match=r"cannot write .*a\.png"):
        picture.save(tmp_path / "a.png", _draw)


def test_without_matplotlib_the_cure_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an optional extra: the message names it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(BadConfiguration) as refusal:
        picture.check(tmp_path / "a.png")

    assert str(refusal.value) == "--plot needs matplotlib: pip install '.[plot]'"

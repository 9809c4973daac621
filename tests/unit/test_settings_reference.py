"""The page of settings."""

from __future__ import annotations

from tests.readme import ROOT
from tests.settings_reference import with_reference


def test_the_page_of_settings_shows_the_reference() -> None:
    """`python -m tests.settings_reference docs/settings.md` writes it."""
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")

    assert with_reference(page) == page

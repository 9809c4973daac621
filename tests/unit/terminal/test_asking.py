"""What a person types counts as yes only where it says so."""

from __future__ import annotations

import io
import sys

import pytest

from worker.terminal.asking import agreed, is_person_there


@pytest.mark.parametrize("typed", ["y\n", "Yes \n", "\n", "no\n", ""])
def test_only_yes_is_yes(typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty line and an end of file are none. The question goes where no result goes."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))

    assert agreed("Send them?") == typed.startswith(("y", "Y"))
    assert not is_person_there()
    assert capsys.readouterr() == ("", "Send them? [y/N] ")

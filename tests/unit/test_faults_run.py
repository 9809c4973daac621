"""The command that runs the mix of faults, without the mix."""

from __future__ import annotations

import sys

import pytest

from tests.faults import run


def test_a_run_that_is_interrupted_ends_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C is no defect whose traceback anybody wants to read."""

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "_keeps", interrupted)
    monkeypatch.setattr(sys, "argv", ["run"])

    assert run.main() == 130
    assert capsys.readouterr().err == "interrupted: nothing is proved of what was not told above\n"

"""The terminal: questions, tables, and JSON for machines."""

from __future__ import annotations

import io
import json
import sys

import pytest

from worker.terminal.terminal import agreed, is_person_there, print_json, table_console


@pytest.mark.parametrize(("columns", "width"), [(20, 80), (80, 80), (160, 160)])
def test_a_page_of_tables_is_never_laid_out_for_less_than_it_fits(
    columns: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A narrower layout would cut its figures, while a terminal only wraps them."""
    monkeypatch.setenv("COLUMNS", str(columns))

    assert table_console().width == width


def test_a_line_of_json_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters that JSON allows, and half characters, are escaped without a change of meaning."""
    text = "a\x7f\x80\x9b31m\x9f\xa0é\udcff"

    print_json({text: text})

    line = capsys.readouterr().out
    escaped = "a\\u007f\\u0080\\u009b31m\\u009f\xa0é\\udcff"
    assert line == f'{{"{escaped}": "{escaped}"}}\n'
    assert json.loads(line) == {text: text}


@pytest.mark.parametrize("typed", ["y\n", "Yes \n", "\n", "no\n", ""])
def test_only_yes_is_yes(typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty line or an end of file means no. The question goes to standard error, where no result goes."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))

    assert agreed("Send them?") == typed.startswith(("y", "Y"))
    assert not is_person_there()
    assert capsys.readouterr() == ("", "Send them? [y/N] ")

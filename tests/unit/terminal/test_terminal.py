"""What every command prints for machines."""

from __future__ import annotations

import json

import pytest

from worker.terminal.terminal import page, print_json


@pytest.mark.parametrize(("columns", "width"), [(20, 80), (80, 80), (160, 160)])
def test_a_page_of_tables_is_never_laid_out_for_less_than_it_fits(
    columns: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figures would be cut, where a terminal only wraps them."""
    monkeypatch.setenv("COLUMNS", str(columns))

    assert page().width == width


def test_a_line_of_json_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters that JSON takes as they are, and halves of characters, come escaped, and mean the same."""
    text = "a\x7f\x80\x9b31m\x9f\xa0é\udcff"

    print_json({text: text})

    line = capsys.readouterr().out
    escaped = "a\\u007f\\u0080\\u009b31m\\u009f\xa0é\\udcff"
    assert line == f'{{"{escaped}": "{escaped}"}}\n'
    assert json.loads(line) == {text: text}

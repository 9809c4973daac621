"""Options that are written down once: as the fields of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from worker.terminal.command_options import Config, add_command


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Bake.

    As often as you like.
    """

    cake: Annotated[str, typer.Argument(metavar="CAKE")]
    times: Annotated[int, typer.Option("--times", "-n", min=1, help="So often.")] = 3
    config: Config = None


def asked(*words: str) -> tuple[list[Wanted], int, str]:
    """What the command got, its exit code, and what was printed."""
    app, got = typer.Typer(), list[Wanted]()

    def act(wanted: Wanted) -> int:
        got.append(wanted)
        return 7

    def end(run: object, _config: Path | None) -> None:
        assert callable(run)
        raise typer.Exit(run())

    add_command(app, "bake", Wanted, act, end)
    result = CliRunner().invoke(app, words)
    return got, result.exit_code, result.output


def test_a_field_is_an_option_or_an_argument() -> None:
    """With its default, and what the command returns is the exit code."""
    assert asked("nut")[:2] == ([Wanted(cake="nut")], 7)
    assert asked("nut", "-n", "5")[0] == [Wanted(cake="nut", times=5)]


def test_what_a_field_does_not_take_is_a_usage_error() -> None:
    """Nothing is done."""
    assert asked("nut", "-n", "0")[:2] == ([], 2)
    assert asked()[:2] == ([], 2)


def test_help_is_the_docstring_and_that_of_each_field() -> None:
    """So it stands in one place."""
    shown = asked("--help")[2]

    for words in ("Bake.", "As often as you like.", "CAKE", "--times", "So often.", "--config"):
        assert words in shown

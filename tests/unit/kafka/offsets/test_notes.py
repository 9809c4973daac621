"""The text stored with a committed offset."""

from __future__ import annotations

import pytest

from worker.kafka.offsets.standings import Attempts, read_attempts


@pytest.mark.parametrize("attempts", [Attempts(0), Attempts(1), Attempts(12), Attempts(4, is_isolated=True)])
def test_what_is_written_is_read(attempts: Attempts) -> None:
    """The next process understands this one."""
    assert read_attempts(str(attempts)) == attempts


def test_the_text_does_not_change() -> None:
    """It stays in the group when the worker is updated."""
    assert str(Attempts(3)) == "attempts=3"
    assert str(Attempts(4, is_isolated=True)) == "attempts=4 trial"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "hello",
        "attempts=",
        "attempts=-1",
        "attempts=x",
        "attempts=٣",
        "attempts=3 ",
        "attempts=3\n",
        " attempts=3",
        "attempts=3 trials",
        "restored, attempts=3",
        '{"attempts": 3}',
        "attempts=" + "9" * 30,
    ],
)
def test_anything_else_is_none_of_ours(text: str | None) -> None:
    """Other tools write texts there too."""
    assert read_attempts(text) is None

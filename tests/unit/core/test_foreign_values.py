"""Numbers that others wrote: read where they are valid, and rejected quickly and without an exception elsewhere."""

from __future__ import annotations

import pytest

from worker.core.foreign_values import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [(b"0", 0), (b"007", 7), (b"9" * 18, 10**18 - 1), (b"9" * 19, None), (b"9" * 5000, None), (b"", None)],
)
def test_a_number_is_so_long_at_most(text: bytes, number: int | None) -> None:
    """Python refuses more than 4,300 digits with an error that ended the worker."""
    assert whole_number(text) == number


@pytest.mark.parametrize("text", [b"-1", b"1.0", b" 1", b"1_0", b"\xb2", b"x"])
def test_what_is_no_number_is_none(text: bytes) -> None:
    """This holds even where `int` would accept it."""
    assert whole_number(text) is None

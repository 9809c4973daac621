"""What a worker says when it ends."""

from __future__ import annotations

from worker.app import _what_was_left


def test_an_end_says_how_many_records_were_left() -> None:
    """A drain that has used half of its time leaves what has not begun, and the last line of the log said otherwise."""
    assert _what_was_left(0) == "everything taken is answered and committed"
    assert "1 of the records taken" in _what_was_left(1)

"""Values that others wrote where we read: any client with the right to write may leave anything there. Pure."""

from __future__ import annotations

# Kafka's numbers have 63 bits. Python takes some time for a number of thousands of digits, and refuses one of 4,301.
MOST_DIGITS = 18


def whole_number(text: bytes, most_digits: int = MOST_DIGITS) -> int | None:
    """The number that so many decimal digits are at most; None for anything else."""
    return int(text) if text.isdigit() and len(text) <= most_digits else None

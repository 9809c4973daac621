"""What was measured, as values: one load on one contender, and all of them together.

Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from worker.tools.bench.columns import Rate
from worker.tools.bench.figures import Flow, Heard


class Measured(NamedTuple):
    """One load on one contender. `heard` has what was wrong with answers; None: not known of this contender here."""

    flow: Flow
    heard: Heard
    cpu_seconds_per_million_rows: float | None
    peak_bytes: int | None
    rows_per_batch: float | None
    busy_seconds_per_second: float | None


class Load(NamedTuple):
    """An open loop: requests per second, and what was asked for."""

    rate: float
    asked: Rate


class Found(NamedTuple):
    """What was measured so far, by the contender's name: the maxima, and the loads, a list entry for each round.

    A load without entries for a contender was more than its maximum.
    """

    maxima: dict[str, list[Measured]]
    steady: dict[tuple[str, Load], list[Measured]]
    loads: tuple[Load, ...]


class Spread(NamedTuple):
    """One figure over the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread | None:
        """None where no round has the figure."""
        found = [value for value in values if value is not None]
        return cls(statistics.median(found), min(found), max(found)) if found else None

"""Sizes as a sweep measures them, made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from worker.tools.profile.engine.boundaries import Floats
from worker.tools.profile.engine.sweep import SizeTimings, Timing


def measured(runs: Mapping[int, Sequence[float]], *, stack: float = 0.0, split: float = 0.0) -> list[SizeTimings]:
    """Batch size → the seconds of its inferences."""
    return [SizeTimings(rows, [[Timing(stack, run, split) for run in seconds]]) for rows, seconds in runs.items()]


def steady(sizes: Sequence[int], *, fixed: float, per_row: float = 0.0) -> list[SizeTimings]:
    """Inferences that always take the same."""
    return measured({rows: [fixed + per_row * rows] * 10 for rows in sizes})


def padded_elements(length: int, rows: Floats) -> Floats:
    """Work in proportion to the padded length."""
    return length * rows

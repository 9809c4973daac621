"""Latency against load, as a picture: p50 and p99 of each contender, and where its maximum lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from worker.benching.report import Account
from worker.commands.figure import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = {"p50": ("-", "o"), "p99": ("--", "s")}


def draw(figure: Figure, accounts: Sequence[Account]) -> None:
    """Both axes are logarithmic: loads and latencies span decades."""
    axes = figure.add_subplot()
    for account, colour in zip(accounts, _colours(len(accounts)), strict=True):
        name = account.part.column.name
        for quantile, (line, marker) in _STYLES.items():
            points = [
                (found.load.rate, found.latency_ms[quantile].median)
                for found in account.steady
                if found.load and quantile in found.latency_ms
            ]
            if points:
                axes.plot(*zip(*points, strict=True), line, marker=marker, color=colour, label=f"{name}, {quantile}")
        if account.maximum and account.maximum.rate:
            axes.axvline(account.maximum.rate.median, color=colour, linestyle=":", label=f"{name}, maximum")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("requests per second")
    axes.set_ylabel("latency from due to read, ms")
    axes.grid(visible=True, which="both", alpha=0.2)
    figure.legend(loc="outside right upper", fontsize="small")


def _colours(count: int) -> list[str]:
    return [COLOURS[at % len(COLOURS)] for at in range(count)]

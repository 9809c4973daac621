"""Latency against load, as a picture: p50 and p99 of each contender, and where its maximum lies.

Draws on a figure that `worker/tools/picture.py` gives it. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from worker.tools.bench.report import Account
from worker.tools.picture import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = {"p50": ("-", "o"), "p99": ("--", "s")}
_MAXIMUM = ":"


def draw(figure: Figure, accounts: Sequence[Account]) -> None:
    """Both axes are logarithmic: loads and latencies span decades. A colour is a contender, a line's kind a figure."""
    axes = figure.add_subplot()
    if not any([*_points(account, quantile)] for account in accounts for quantile in _STYLES):
        axes.set_ylim(1, 1000)  # no load was kept up; there is no logarithmic scale for nothing
        axes.set_xlim(1, 1000)
    for account, colour in zip(accounts, cycle(COLOURS), strict=False):
        for quantile, (line, marker) in _STYLES.items():
            if points := list(_points(account, quantile)):
                axes.plot(*zip(*points, strict=True), line, marker=marker, color=colour)
        if account.maximum and account.maximum.rate:
            axes.axvline(account.maximum.rate.median, color=colour, linestyle=_MAXIMUM)
        axes.plot([], [], color=colour, label=account.part.column.name)
    for quantile, (line, marker) in _STYLES.items():
        axes.plot([], [], line, marker=marker, color="grey", label=quantile)
    axes.plot([], [], _MAXIMUM, color="grey", label="maximum")
    _finish(axes)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small", frameon=False)


def _finish(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.10g}")
        axis.set_minor_formatter("")
    axes.set_xlabel("requests per second")
    axes.set_ylabel("milliseconds")
    axes.set_title("Latency against load, from the instant a request is due until its answer is read")
    axes.title.set_fontsize("medium")
    axes.grid(visible=True, which="both", alpha=0.2)


def _points(account: Account, quantile: str) -> Iterator[tuple[float, float]]:
    """Requests per second, and milliseconds: of the loads that were measured and have this quantile."""
    for line in account.steady:
        if line.load is not None and quantile in line.latency_ms:
            yield line.load.rate, line.latency_ms[quantile].median

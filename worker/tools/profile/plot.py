"""What `profile` measured, as a picture: rows/s and the latency of one inference against the rows of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.tools.picture import COLOURS
from worker.tools.profile.engine.padding import BucketAdvice
from worker.tools.profile.report import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(figure: Figure, profile: Profile) -> None:
    """Two panels side by side, the knee marked in both; a third for lengths, if there is a sample."""
    subject = profile.subject
    figure.suptitle(f"{subject.name}, version {subject.version}, on {subject.device}", parse_math=False)
    left, right, *rest = figure.subplots(1, 2 if profile.buckets is None else 3)
    _rates(left, profile)
    _latencies(right, profile)
    for panel in (left, right):
        _rows_axis(panel, profile)
    if profile.buckets is not None:
        _lengths(rest[0], profile.buckets)


def _lengths(panel: Axes, found: BucketAdvice) -> None:
    panel.hist(found.sample.lengths, bins=40, color=COLOURS[0])
    panel.set_xlabel(f"length ({found.axis})", parse_math=False)
    panel.set_ylabel("rows of the sample")
    for at, boundary in enumerate(found.boundaries):
        panel.axvline(boundary, color=COLOURS[1], linestyle="--", label=None if at else "buckets end")
    panel.legend()


def _rates(panel: Axes, profile: Profile) -> None:
    rows = [size.rows for size in profile.sizes]
    panel.plot(rows, [size.rows_per_s for size in profile.sizes], "o-", color=COLOURS[0])
    panel.set_ylabel("rows/s")
    panel.set_ylim(bottom=0)
    panel.yaxis.set_major_formatter("{x:,.0f}")


def _latencies(panel: Axes, profile: Profile) -> None:
    rows = [size.rows for size in profile.sizes]
    for percent, line, colour in ((50, "o-", COLOURS[0]), (99, "s--", COLOURS[1])):
        milliseconds = [size.run_seconds(percent) * 1000 for size in profile.sizes]
        panel.plot(rows, milliseconds, line, color=colour, label=f"p{percent}")
    panel.set_ylabel("one inference, ms")
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter("{x:g}")


def _rows_axis(panel: Axes, profile: Profile) -> None:
    rows = [size.rows for size in profile.sizes]
    panel.set_xlabel("rows in a batch")
    panel.set_xscale("log", base=2)
    panel.set_xticks(rows, [str(count) for count in rows], rotation=90 if len(rows) > 8 else 0)
    panel.grid(visible=True, alpha=0.3)
    panel.axvline(profile.knee.rows, color="grey", linestyle=":", label=f"knee: {profile.knee.rows:,} rows")
    panel.legend()

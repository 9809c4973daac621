"""What `profile` advises for lengths, for people: what padding costs, each bucket measured, and the line to set."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.padding import Padding
from rich.table import Table

from worker.terminal.terminal import count
from worker.tools.profile.engine.padding import BucketAdvice, Way
from worker.tools.profile.engine.sweep import SizeTimings
from worker.tools.profile.page import Page, milliseconds, table
from worker.tools.profile.report import settings_of

_WAYS = {
    "one_by_one": "one row at a time, not padded",
    "to_longest_boundary": "batches as rows come, all padded to {longest}",
    "to_longest_of_batch": "batches as rows come, padded to their longest",
    "buckets": "batches by bucket",
    "buckets_within_tokens": "batches by bucket, up to MAX_BATCH_TOKENS",
}
FEW = 500  # rows; of so few the longest tenth are fifty
# Times the rows/s of any way without them: less is lost in the differences between two sweeps.
WORTH = 1.1


def show_buckets(screen: Page, found: BucketAdvice) -> None:
    screen.title(f"Buckets for {found.axis}")
    screen.text(_sample(found))
    screen.write(_ways(found))
    screen.text(_verdict(found))
    for name, value in settings_of(found).items():
        screen.setting(name, value)
    screen.write(_table(found, lambda size: f"{size.rows_per_s:,.0f}", "rows/s at"))
    screen.write(_table(found, lambda size: milliseconds(size.run_seconds(99)), "p99 ms at"))
    for line in _remarks(found):
        screen.text(line, "dim")
    if any(size.is_unsteady for bucket in found.buckets for size in bucket.swept.sizes):
        screen.text("The machine was unsteady while buckets were measured: measure again when it is quiet.", "yellow")


def _sample(found: BucketAdvice) -> str:
    lengths, source = found.sample.lengths, found.sample.source
    told = (
        f"{count(len(lengths), 'row')} from {source}, {lengths.mean():.1f} long on average, the longest "
        f"{lengths.max():,}"
    )
    if found.sample.refused:
        told += f"; {count(found.sample.refused, 'record')} left out, the first because {found.sample.why}"
    return told if len(lengths) >= FEW else f"{told}. So few tell little: give thousands."


def _ways(found: BucketAdvice) -> Table:
    ways = table(["", "padding", "rows/s", "gain"])
    for way in found.ways:
        ways.add_row(
            _named(way, found),
            f"{way.waste:.0%}",
            f"{way.rows_per_s:,.0f}",
            f"{way.rows_per_s / found.before.rows_per_s:.2f}",
            style="bold" if way is found.ways[-1] else "",
        )
    return ways


def _named(way: Way, found: BucketAdvice) -> str:
    return _WAYS[way.name].format(longest=found.boundaries[-1])


def _verdict(found: BucketAdvice) -> str:
    rival = max((way for way in found.ways if not way.name.startswith("buckets")), key=lambda way: way.rows_per_s)
    if found.ways[-1].rows_per_s >= WORTH * rival.rows_per_s:
        return f"Set buckets: {found.gain:.1f} times the rows/s of batches padded as rows come."
    return (
        f"Buckets hardly pay here: {_named(rival, found)}, comes to {rival.rows_per_s:,.0f} rows/s. If you want them:"
    )


def _table(found: BucketAdvice, cell: Callable[[SizeTimings], str], what: str) -> Padding:
    """One line for each bucket, one column for each batch size."""
    rows = sorted({size.rows for bucket in found.buckets for size in bucket.swept.sizes})
    sizes = [f"{what} {size:,}" if at == 0 else f"{size:,}" for at, size in enumerate(rows)]
    buckets = table(["up to", "of rows", "padding", "batch", *sizes])
    for bucket in found.buckets:
        cells = {size.rows: cell(size) for size in bucket.swept.sizes}
        buckets.add_row(
            f"{bucket.boundary:,}",
            f"{bucket.share:.1%}",
            f"{bucket.waste:.0%}",
            f"{bucket.mean_rows:.0f}",
            *(cells.get(size, "–") for size in rows),
        )
    return Padding(buckets, (1, 0, 0, 0))


def _remarks(found: BucketAdvice) -> Iterator[str]:
    fill = found.fill
    how = (
        "if there is a backlog"
        if fill.rate is None
        else f"if a replica gets {fill.rate:,.0f} rows/s and a request waits {fill.wait * 1000:.0f} ms for company"
    )
    yield (
        "padding: of the elements that the model sees. rows/s: of a lane, which has the device to itself. batch: rows "
        f"that share an inference {how}; WORKER_BATCHING__MAX_BATCH_SIZE allows {fill.most:,}."
    )
    yield (
        f"What is longer than {found.boundaries[-1]:,} is refused: --longest N makes room. pad is what rows are filled "
        "up with: give your tokenizer's."
    )

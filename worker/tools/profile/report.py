"""Writes the findings of `profile` as one JSON object, or as a page for people, with the advice last.

The members of the JSON are a contract, in docs/tools.md: names stay, new ones may come. The page fits 80 columns and a
pipe. Names from the model's file are escaped before they reach the terminal.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.terminal.terminal import WIDEST, count, milliseconds, printable, write
from worker.tools.profile.advice import HEAD_ROOM, Advice
from worker.tools.profile.buckets import BucketAdvice
from worker.tools.profile.sweep import Sweep


@dataclass(slots=True)
class Profile:
    """The findings, filled in by the command. `model` describes the model and the measurement.

    `open_axes`: the length used for each axis that the model's file leaves open, by input and axis. `refusal` says why
    there is no `advice`. `buckets` is None without a sample of lengths.
    """

    model: Mapping[str, Any]
    sweep: Sweep
    open_axes: Mapping[str, int]
    buckets: BucketAdvice | None = None
    advice: Advice | None = None
    refusal: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns plain values, times in seconds: one member for each section."""
        too_large, advice = self.sweep.too_large, self.advice
        return {
            "model": dict(self.model),
            "open_axes": dict(self.open_axes),
            "sizes": [size._asdict() | {"rows_per_s": size.rows_per_s} for size in self.sweep.sizes],
            "too_large": None if too_large is None else too_large._asdict(),
            "advice": None if advice is None else _advice(advice),
            "refusal": self.refusal,
            "lengths": None if self.buckets is None else _lengths(self.buckets),
        }


def _advice(advice: Advice) -> dict[str, Any]:
    return {
        "batch": advice.is_batching,
        "settings": dict(advice.settings),
        "limit": advice.limit,
        "request": advice.cost._asdict(),
        "replicas": advice.replicas,
        "capacities": [each._asdict() | {"requests_per_s": each.per_s} for each in advice.capacities],
    }


def _lengths(found: BucketAdvice) -> dict[str, Any]:
    lengths = found.lengths
    return {
        "axis": str(found.axis),
        "sample": {"rows": len(lengths), "mean": float(lengths.mean()), "longest": int(lengths.max())},
        "waste": {"before": found.before, "after": found.after},
        "mean_padded": found.mean_padded,
        "settings": {"WORKER_BATCHING__BUCKETS": found.setting},
    }


def show(console: Console, profile: Profile) -> None:
    """Write the page for people."""
    subject, advice, found = profile.model, profile.advice, profile.buckets
    _title(console, f"Model {subject['name']}, version {subject['version']}")
    _write(console, *_remarks(profile), _sizes(profile))
    if advice is not None:
        console.print()
        _title(console, "Advice")
        _write(console, *_words(advice))
        for name, value in advice.settings.items():
            _setting(console, name, f"{value:g}")
    if found is not None:
        console.print()
        _title(console, f"Buckets for {found.axis}")
        _write(console, *_bucket_words(found))
        _setting(console, "WORKER_BATCHING__BUCKETS", found.setting)


def _title(console: Console, text: str) -> None:
    console.print(Text(printable(text), "bold"))


def _write(console: Console, *what: str | Text | Table) -> None:
    for each in what:
        shown = Text(printable(each)) if isinstance(each, str) else each
        write(console, shown, 2, min(console.width, WIDEST))


def _setting(console: Console, name: str, value: str) -> None:
    """Write a setting to copy: quoted for a shell, and in one line however narrow the terminal is."""
    console.print(Text(f"    {name}={shlex.quote(value)}", "bold green"), soft_wrap=True)


def _remarks(profile: Profile) -> Iterator[str | Text]:
    subject, too_large = profile.model, profile.sweep.too_large
    threads = "all cores" if subject["threads"] == 0 else count(subject["threads"], "thread")
    on_cpu = f"; an inference on the CPU has {threads}" if subject["device"] == "cpu" else ""
    yield f"on {subject['device']}: {subject['why']}"
    yield f"{count(subject['request_rows'], 'row')} in a request; {subject['seconds']:g} s for each size{on_cpu}"
    if (found := profile.buckets) is not None:
        yield f"{found.axis} is {found.mean_padded:,} long, as rows are on average in the buckets below"
    elif profile.open_axes:
        told = ", ".join(f"{axis} is {length:,} long" for axis, length in profile.open_axes.items())
        yield _warning(
            f"{told}: the model's file leaves that open. Figures hold for that alone; --lengths takes yours."
        )
    if too_large is not None:
        yield _warning(f"{too_large.rows:,} rows and more are left out: {too_large.reason}")


def _warning(text: str) -> Text:
    return Text(printable(text), "yellow")


def _sizes(profile: Profile) -> Table:
    sizes = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    for head in ("rows", "rows/s", "gain", "p50 ms", "p99 ms", "stack ms", "split ms"):
        sizes.add_column(head, justify="right", no_wrap=True)
    chosen = profile.advice and profile.advice.chosen.rows
    first = profile.sweep.sizes[0].rows_per_s
    for size in profile.sweep.sizes:
        times = (_digits(seconds) for seconds in (size.p50, size.p99, size.stack, size.split))
        cells = (f"{size.rows:,}", f"{size.rows_per_s:,.0f}", f"{size.rows_per_s / first:.1f}", *times)
        sizes.add_row(*cells, style="bold" if size.rows == chosen else "")
    return sizes


def _words(advice: Advice) -> Iterator[str]:
    chosen, cost, alone = advice.chosen, advice.cost, advice.capacities[0]
    most = f"{chosen.per_s:,.0f} requests/s"
    if advice.is_batching:
        with_batches = f"with up to {chosen.rows:,} rows in a batch one replica answers at most {most}"
        yield f"Batch: {with_batches}, and {alone.per_s:,.0f} with one request at a time."
    else:
        yield f"Do not batch: one request at a time gives {most}, and larger batches hardly more."
    yield (
        f"A request as {cost.encoding} ({cost.size:,} bytes) takes the loop {chosen.loop * 1e6:,.0f} µs, of which "
        f"{cost.decode * 1e6:,.0f} to decode it and {cost.encode * 1e6:,.0f} to encode its answer. In such batches the "
        f"model takes {chosen.model * 1e6:,.0f} µs."
    )
    yield {
        "model": "The model is your limit.",
        "encoding": "The encoding is your limit: see what --encoding rows or protobuf gives, or run more replicas.",
        "loop": "The loop is your limit: put more rows into a request, or run more replicas.",
    }[advice.limit]
    if advice.replicas is not None:
        free = f"each with {HEAD_ROOM:.0%} free to catch up with a backlog"
        yield f"Replicas: {advice.replicas:,}, {free}; the request topics need as many partitions."
    bound = "" if advice.linger_budget is None else ", within LATENCY_BUDGET_MS"
    yield (
        f"p99 from request to answer: about {milliseconds(chosen.latency * 1000)}, for the inference that runs, its "
        f"own and Kafka. Leave LINGER_MS=auto: it learns whether waiting for company helps{bound}."
    )


def _bucket_words(found: BucketAdvice) -> Iterator[str]:
    lengths, longest = found.lengths, found.boundaries[-1]
    mean = f"{lengths.mean():.1f} long on average, the longest {longest:,}"
    yield f"{count(len(lengths), 'row')}, {mean}. A longer one would be refused."
    padding = f"{found.before:.0%} of what the model sees in batches as rows come, {found.after:.0%} in these buckets"
    yield f"Padding: {padding}."


def _digits(seconds: float) -> str:
    """Writes milliseconds in two or three digits, without the unit: a small model's inference takes 0.0041."""
    shown = seconds * 1000
    digits = 0 if shown >= 100 else 2 if shown >= 0.1 else 3 if shown >= 0.01 else 4
    return f"{shown:,.{digits}f}"

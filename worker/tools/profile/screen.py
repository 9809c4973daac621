"""What `profile` found, for people: the table, where it bends, and what to set.

Fits 80 columns and a pipe. Names come from the model: nothing of them reaches the terminal raw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.terminal import terminal
from worker.terminal.terminal import count, printable
from worker.tools.profile.buckets_page import show_buckets
from worker.tools.profile.engine.advice import HEAD_ROOM, Advice
from worker.tools.profile.engine.costs import ANSWER_SECONDS, TAKE_SECONDS, TRANSPORT_SECONDS
from worker.tools.profile.engine.knee import Knee
from worker.tools.profile.page import Page, milliseconds, table
from worker.tools.profile.report import Profile


def show(console: Console, profile: Profile) -> None:
    """Write it, the advice last."""
    screen = Page(console)
    subject = profile.subject
    screen.title(f"Model {subject.name}, version {subject.version}")
    for line in _subject(profile):
        screen.write(line)
    screen.title("Batch sizes")
    screen.write(_sizes(profile))
    for line in _remarks(profile):
        screen.write(line)
    if profile.advice is not None:
        _show_advice(screen, profile.advice, profile)
    if profile.buckets is not None:
        show_buckets(screen, profile.buckets)


def _subject(profile: Profile) -> Iterator[Text]:
    subject = profile.subject
    yield Text(printable(f"on {subject.device}: {subject.why}"))
    threads = "all cores" if subject.threads == 0 else count(subject.threads, "thread")
    on_cpu = f"; an inference on the CPU has {threads}" if subject.device == "cpu" else ""
    yield Text(f"{count(subject.request_rows, 'row')} in a request; {subject.seconds:g} s for each size{on_cpu}")
    if (found := profile.buckets) is not None:
        told = f"{found.axis} is {found.mean_padded:,} long, as rows are on average in the buckets below"
        yield Text(printable(told))
    elif profile.open_axes:
        yield Text(printable(_made_up(profile.open_axes)), "yellow")


def _made_up(axes: Mapping[str, int]) -> str:
    """Costs may grow with the square of a length: what holds for the one measured holds for no other."""
    told = ", ".join(f"{axis} is {length:,} long" for axis, length in axes.items())
    return f"{told}: the model's file leaves that open. All figures are for that and no other; --lengths takes yours."


def _sizes(profile: Profile) -> Table:
    sizes = table(["rows", "rows/s", "", "gain", "p50 ms", "p99 ms", "stack ms", "split ms"], expand=True)
    sizes.columns[2].ratio, sizes.columns[2].max_width = 1, 40
    best, first = max(size.rows_per_s for size in profile.sizes), profile.sizes[0].rows_per_s
    for size in profile.sizes:
        sizes.add_row(
            f"{size.rows:,}",
            f"{size.rows_per_s:,.0f}",
            Bar(best, 0, size.rows_per_s),
            f"{size.rows_per_s / first:.1f}",
            milliseconds(size.run_seconds(50)),
            milliseconds(size.run_seconds(99)),
            f"{size.stack_seconds * 1000:.2f}",
            f"{size.split_seconds * 1000:.2f}",
            style="bold" if size.rows == profile.knee.rows else "",
        )
    return sizes


def _remarks(profile: Profile) -> Iterator[Text]:
    yield Text("p50 and p99 of one inference. Stacking and splitting overlap with the next.", "dim")
    if profile.too_large is not None:
        what = f"{profile.too_large.rows:,} rows and more are left out: {profile.too_large.reason}"
        yield Text(printable(what), "yellow")
    if unsteady := profile.unsteady:
        rows = ", ".join(f"{size.rows:,}" for size in unsteady)
        yield Text(
            f"Batch sizes {rows}: the p99 is far above the p50, so the machine had other work, or slowed down. Measure "
            "again when it is quiet, or for longer (--seconds).",
            "yellow",
        )
    yield Text(_bend(profile.knee, is_the_most=profile.too_large is not None))


def _bend(knee: Knee, *, is_the_most: bool) -> str:
    """`is_the_most`: no larger batch could be measured."""
    told = f"Knee: {count(knee.rows, 'row')}, {knee.rows_per_s:,.0f} rows/s, {knee.share:.0%} of the best."
    if knee.is_last:
        return told if is_the_most else f"{told} It may rise further: --batch-sizes measures larger ones."
    return told if knee.gain > 1 else f"{told} Larger batches gain next to nothing."


def _show_advice(screen: Page, advice: Advice, profile: Profile) -> None:
    need = advice.need
    screen.title(f"Advice for {_rate(need.rate)} requests/s with a p99 of {need.budget * 1000:,.9g} ms")
    screen.write(Text(_verdict(advice)))
    if profile.unsteady:
        screen.write(Text("The machine was unsteady, and so are these figures: measure again to be sure.", "yellow"))
    screen.setting("WORKER_BATCHING__MAX_BATCH_SIZE", advice.forecast.max_rows)
    screen.write(Text(_prediction(advice)))
    screen.write(_capacities(advice), indent=4)
    if advice.replicas > 1:
        needed = f"The request topics need {advice.replicas:,} partitions or more, with keys that spread over them."
        screen.write(Text(needed))
    screen.write(Text(_assumed(profile.transport), "dim"))
    if (found := profile.buckets) is not None:
        screen.text(f"Simulated as one bucket of rows {found.mean_padded:,} long; several fill more slowly.", "dim")


def _verdict(advice: Advice) -> str:
    if advice.roomier is None:
        return _choice(advice)
    replicas, budget = advice.roomier
    return (
        f"{_choice(advice)} The budget is what costs: with {_ms(budget)} {count(replicas, 'replica')} would be enough."
    )


def _choice(advice: Advice) -> str:
    replicas, rows = count(advice.replicas, "replica"), advice.forecast.max_rows
    if advice.is_batching:
        without = advice.alone.replicas(advice.need.rate)
        instead = "would never meet it" if without is None else f"would take {without:,}"
        enough = f"{replicas} {'is' if advice.replicas == 1 else 'are'} enough"
        return f"Batch: with up to {rows:,} rows in a batch {enough}; one request at a time {instead}."
    if advice.replicas == 1:
        return "Do not batch: one session already serves your rate within the budget."
    return f"Do not batch: it saves no replica. {replicas} serve your rate within the budget."


def _prediction(advice: Advice) -> str:
    each, of_all = advice.forecast, "The replica" if advice.replicas == 1 else f"Each of {advice.replicas:,} replicas"
    return (
        f"{of_all} gets {_rate(each.rate)} requests/s, {advice.load:.0%} of what it could do. From request to answer: "
        f"p99 {_ms(each.p99)}, p50 {_ms(each.p50)} or less. {each.mean_rows:.1f} rows in a batch, the lane busy "
        f"{each.lane_busy:.0%} of the time."
    )


def _capacities(advice: Advice) -> Table:
    capacities = table(["MAX_BATCH_SIZE", "requests/s at most", "within the budget", "replicas"], padding=3)
    for capacity in advice.capacities:
        replicas = capacity.replicas(advice.need.rate)
        capacities.add_row(
            f"{capacity.max_rows:,}",
            _rate(capacity.ceiling),
            _rate(capacity.within) if capacity.within else "never",
            "" if replicas is None else f"{replicas:,}",
            style="bold" if capacity.max_rows == advice.forecast.max_rows else "",
        )
    return capacities


def _assumed(transport: float) -> str:
    loop = f"{(TAKE_SECONDS + ANSWER_SECONDS) * 1e6:.0f} µs of the loop for a request"
    whose = "our p99 on the embedded broker; --transport-ms takes yours"
    return (
        "Simulated: requests at random instants, batches that fill while the lane is busy, a core for the loop besides "
        f"what an inference takes, {loop}, {_ms(transport)} under way in Kafka "
        f"({whose if transport == TRANSPORT_SECONDS else 'as you say'}), and {HEAD_ROOM:.0%} of a replica kept free to "
        "catch up with a backlog. LINGER_MS stays auto, its default. At least once: with exactly once an answer waits "
        "for its transaction's end, so COMMIT_INTERVAL_MS belongs to --transport-ms."
    )


def _ms(seconds: float) -> str:
    return terminal.milliseconds(seconds * 1000)


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.3g}"

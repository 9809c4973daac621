"""A run's outcome as a table for people, at most 80 columns wide. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.fleet import Life
from tests.faults.mix import Outcome
from tests.faults.plan import Kind

MIB = 1024 * 1024
LONG_LIFE = 60.0  # seconds; growth in a shorter life is only its start
EXAMPLES = 3
PROMISES = (
    ("lost", "lost"),
    ("repeated", "repeated"),
    ("out of order", "out of order"),
    ("wrong", "wrong"),
    ("committed past", "commits past an unsettled record"),
)
STATE_PROMISES = (("wrong state", "wrong states"),)


def table(outcome: Outcome, replay: str) -> str:
    """The whole table; `replay` is the command that repeats the run."""
    parts = _head(outcome), _promises(outcome), _faults(outcome), _replicas(outcome), _end(outcome, replay)
    return "\n\n".join("\n".join(part) for part in parts)


def _head(outcome: Outcome) -> Iterator[str]:
    options = outcome.options
    yield (
        f"{options.guarantee.replace('_', ' ')}: {outcome.seconds / 60:.1f} minutes, {options.replicas} replicas, "
        f"{options.rate:,.0f} requests a second"
    )
    ways = ", ".join(f"{leg.protocol}/{leg.ids}" for leg in options.legs)
    yield f"  group protocol/transactional ids: {ways}"
    if options.state:
        yield f"  model with state: {options.state}, {len(outcome.books.states):,} keys, kept in {outcome.kept_in}"


def _promises(outcome: Outcome) -> Iterator[str]:
    books = outcome.books
    again = books.published_twice
    yield _row("requests", len(books.requests), f"{again:,} of them published again by their client" if again else "")
    if books.passed_over:
        yield _row("passed over", books.passed_over)
    yield _row("answers", books.answers, f"{books.errors:,} of them errors")
    yield _row("dead letters", books.dead_letters)
    for name, words in (*PROMISES, *STATE_PROMISES) if outcome.options.state else PROMISES:
        yield _row(words, books.found[name])
    if books.announced:
        yield _row("repeated behind a lost offset", books.announced, "as was said at the start")
    yield _row("looks at the commits", books.looks, f"{outcome.unanswered_looks} more met no broker")
    if transactions := outcome.fleet.transactions:
        yield _row("transactions", transactions.total(), f"{transactions['failed']:,} of them failed")


def _row(words: str, number: int, more: str = "") -> str:
    return f"  {words:<34} {number:>9,}" + (f"  {more}" if more else "")


def _faults(outcome: Outcome) -> Iterator[str]:
    planned = {fault.kind for leg in outcome.options.legs for fault in leg.faults}
    for kind in filter(planned.__contains__, Kind):
        yield _row(kind, outcome.faults[kind])
    yield _row("faults in all", outcome.faults.total())


def _replicas(outcome: Outcome) -> Iterator[str]:
    fleet = outcome.fleet
    yield _row(
        "replicas that lived",
        len(fleet.lives),
        f"{fleet.exits.total()} ended by SIGTERM, {fleet.exits[0]} with exit code 0",
    )
    for life in sorted(fleet.lives, key=lambda life: -life.seconds)[:4]:
        if life.seconds >= LONG_LIFE:
            yield _life(life)


def _life(life: Life) -> str:
    (_, first), *_, (_, last) = life.vitals
    return (
        f"  {life.name:<11} {life.seconds:6.0f} s  {first.memory / MIB:4.0f} → {last.memory / MIB:4.0f} MiB "
        f"({life.growth('memory') / MIB:+.2f}/min)  threads {first.threads} → {last.threads}  "
        f"files {first.files} → {last.files}"
    )


def _end(outcome: Outcome, replay: str) -> Iterator[str]:
    broken = outcome.broken
    yield "PROMISE BROKEN: " + ", ".join(broken) if broken else "every promise was kept"
    for name in outcome.books.broken:
        yield from (f"  {name}: {example}" for example in outcome.books.examples[name][:EXAMPLES])
    yield from (f"  exits: {how}" for how in outcome.fleet.broken[:EXAMPLES])
    yield f"history: {outcome.folder / 'history.jsonl'}"
    yield f"replay:  {replay}"
